import pytest

from tedtrajrec.network.classes import CLASS_NUMBER, DEFAULT_SPEED_KMH, ROAD_CLASSES
from tedtrajrec.network.osm_tags import (
    LIMITS,
    Road,
    directions,
    is_open,
    parse_maxspeed,
    read_road,
    speed_kmh,
)


def road(service=False, country=None, **tags):
    tags = {key.replace("__", ":"): value for key, value in {"highway": "residential", **tags}.items()}
    return read_road(tags, service=service, country=country)


@pytest.mark.parametrize("highway", ROAD_CLASSES)
def test_every_class_is_a_road_and_service_only_when_asked_for(highway):
    found = road(highway=highway)
    if highway == "service":
        assert found == "service road"
        found = road(highway=highway, service=True)
    assert isinstance(found, Road)
    assert found.road_class == CLASS_NUMBER[highway]
    assert found.forward_kmh == DEFAULT_SPEED_KMH[highway]


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"highway": "footway"}, "not a road for cars"),
        ({"highway": "construction"}, "not a road for cars"),
        ({"highway": "track"}, "not a road for cars"),
        ({"area": "yes"}, "an area"),
        ({"access": "no"}, "closed to cars"),
        ({"access": "private"}, "closed to cars"),
        ({"access": "no", "bus": "yes"}, "closed to cars"),
        ({"motor_vehicle": "no", "access": "yes"}, "closed to cars"),
        ({"motorcar": "no", "motor_vehicle": "yes"}, "closed to cars"),
        ({"vehicle": "forestry"}, "closed to cars"),
        ({"vehicle": "agricultural;forestry"}, "closed to cars"),
        ({"access": "Private"}, "closed to cars"),
        ({"oneway": "yes", "motor_vehicle__forward": "no"}, "closed to cars"),
    ],
)
def test_what_is_left_out(tags, reason):
    assert road(**tags) == reason


def test_emergency_access_is_no_service_road_for_cars():
    assert (
        read_road({"highway": "service", "service": "emergency_access"}, service=True, country=None) == "service road"
    )


@pytest.mark.parametrize(
    "tags",
    [
        {"access": "destination"},
        {"access": "customers"},
        {"access": "permissive"},
        {"access": "permit"},
        {"access": "no", "motor_vehicle": "yes"},
        {"access": "private", "motorcar": "designated"},
        {"vehicle": "no", "motor_vehicle": "destination"},
        {"access": "no;destination"},
        {"access": "something new"},
        {"bicycle": "no", "hgv": "no"},
        {"area": "no"},
    ],
)
def test_what_is_open(tags):
    assert isinstance(road(**tags), Road)


def test_access_by_direction():
    tags = {"motor_vehicle:backward": "no", "motor_vehicle": "yes"}
    assert is_open(tags, "forward")
    assert not is_open(tags, "backward")
    assert directions({"highway": "primary", **tags}) == (True, False)
    # The name of the vehicle counts before the direction.
    assert is_open({"motorcar": "yes", "vehicle:backward": "no"}, "backward")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, (True, True)),
        ({"oneway": "yes"}, (True, False)),
        ({"oneway": "true"}, (True, False)),
        ({"oneway": "1"}, (True, False)),
        ({"oneway": "-1"}, (False, True)),
        ({"oneway": "reverse"}, (False, True)),
        ({"oneway": "no"}, (True, True)),
        ({"oneway": "reversible"}, (True, True)),
        ({"oneway": "alternating"}, (True, True)),
        ({"oneway": "perhaps"}, (True, True)),
        ({"junction": "roundabout"}, (True, False)),
        ({"junction": "circular"}, (True, False)),
        ({"junction": "roundabout", "oneway": "no"}, (True, True)),
        ({"junction": "roundabout", "oneway": "-1"}, (False, True)),
        ({"junction": "yes"}, (True, True)),
        ({"highway": "motorway"}, (True, False)),
        ({"highway": "motorway", "oneway": "no"}, (True, True)),
        ({"highway": "motorway_link"}, (True, True)),
        ({"highway": "trunk"}, (True, True)),
        ({"oneway": "yes", "oneway:bicycle": "no"}, (True, False)),
        ({"oneway": "yes", "oneway:motor_vehicle": "no"}, (True, True)),
        ({"oneway:motorcar": "-1", "oneway": "no"}, (False, True)),
    ],
)
def test_directions(tags, expected):
    assert directions({"highway": "residential", **tags}) == expected


@pytest.mark.parametrize(
    ("text", "kmh"),
    [
        ("50", 50),
        (" 50 ", 50),
        ("62.5", 62.5),
        ("50 km/h", 50),
        ("50km/h", 50),
        ("30 mph", 48.28032),
        ("30mph", 48.28032),
        ("5 knots", 9.26),
        ("none", 130),
        ("walk", 7),
        ("PT:urban", 50),
        ("pt:rural", 90),
        ("PT:motorway", 120),
        ("PT:trunk", 100),
        ("PT:zone30", 30),
        ("DE:zone:20", 20),
        ("DE:30", 30),
        ("FR:walk", 20),
        ("DE:walk", 7),
        ("DE:living_street", 7),
        ("GB:nsl_single", 96.56064),
        ("UK:nsl_dual", 112.65408),
        ("GB:zone20", 32.18688),
        ("BE-VLG:rural", 70),
        ("50;30", 50),
        ("signals;80", 80),
        ("50|30", 50),
    ],
)
def test_maxspeed(text, kmh):
    assert parse_maxspeed(text) == pytest.approx(kmh)


@pytest.mark.parametrize(
    "text", ["signals", "variable", "fast", "", "0", "-5", "900", "50 parsecs", "XX:urban", "PT:moon", "sign", ":"]
)
def test_maxspeed_that_says_nothing(text):
    assert parse_maxspeed(text) is None


def test_the_nearest_word_on_speed_counts():
    tags = {"highway": "primary", "maxspeed": "50", "maxspeed:backward": "30", "maxspeed:type": "PT:rural"}
    assert speed_kmh(tags, "forward", None) == 50
    assert speed_kmh(tags, "backward", None) == 30
    assert (
        speed_kmh({"highway": "primary", "maxspeed": "signals", "source:maxspeed": "PT:rural"}, "forward", None) == 90
    )
    assert speed_kmh({"highway": "primary"}, "forward", None) is None
    assert speed_kmh({"highway": "primary"}, "forward", "pt") == 50
    assert speed_kmh({"highway": "motorway"}, "forward", "PT") == 120
    assert speed_kmh({"highway": "motorway_link"}, "forward", "PT") is None


def test_speeds_of_a_road():
    assert road(maxspeed="40", maxspeed__backward="20")[1:3] == (40, 20)
    assert road(maxspeed="40", oneway="-1")[1:3] == (0, 40)
    assert road()[1:3] == (DEFAULT_SPEED_KMH["residential"],) * 2
    assert road(country="DE")[1:3] == (50, 50)


def test_a_limit_that_cannot_be_read_is_noted():
    assert road(maxspeed="fast").odd_maxspeed
    assert road(maxspeed__forward="ninety").odd_maxspeed
    assert not road(maxspeed="signals").odd_maxspeed
    assert not road(maxspeed="50").odd_maxspeed


@pytest.mark.parametrize("country", LIMITS)
def test_country_limits_are_in_order(country):
    limits = LIMITS[country]
    assert 5 <= limits.living_street < limits.urban <= limits.rural <= limits.motorway <= 140
    assert limits.urban <= limits.trunk <= limits.motorway
