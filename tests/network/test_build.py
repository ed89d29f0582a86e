import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.network.bbox import parse_bbox
from tedtrajrec.network.build import build_network


def test_bounding_boxes():
    assert parse_bbox("-8.69,41.12,-8.55,41.2") == (-8.69, 41.12, -8.55, 41.2)
    for text in ("1,2,3", "a,b,c,d", "3,1,2,4", "-8,41,-7,410", "nan,1,2,3"):
        with pytest.raises(InputError, match=r"west,south,east,north"):
            parse_bbox(text)


def test_a_city_out_of_nothing():
    network = build_network("synthetic")
    assert len(network) > 300
    with pytest.raises(InputError, match="synthetic city cannot be cut"):
        build_network("synthetic", bbox=(0, 0, 1, 1))


def test_a_network_on_both_sides_of_the_180th_meridian_is_refused(tmp_path):
    path = tmp_path / "taveuni.csv"
    path.write_text('u,v,geometry\n1,2,"LINESTRING (179.999 -16.8, -179.999 -16.8)"\n')
    with pytest.raises(InputError, match="both sides of the 180th meridian"):
        build_network(path)


def test_unknown_kinds_are_named(tmp_path):
    path = tmp_path / "roads.shp"
    path.write_text("x")
    with pytest.raises(InputError, match=r"roads\.shp: this kind of file is not known as a road network"):
        build_network(path)
    with pytest.raises(InputError, match="there is no such file"):
        build_network(tmp_path / "gone.osm.pbf")


@pytest.mark.real
def test_the_suffix_chooses_the_reader(data_dir):
    chengdu = build_network(data_dir / "chengdu" / "network.geojson.gz")
    assert len(chengdu) == 3046
    connected = build_network(data_dir / "chengdu" / "network.geojson.gz", largest_component_only=True)
    assert 0 < len(connected) < 3046
    west, south, east, north = chengdu.bbox
    half = build_network(data_dir / "chengdu" / "network.geojson.gz", bbox=(west, south, (west + east) / 2, north))
    assert 0 < len(half) < 3046
    with pytest.raises(InputError, match="U-turns cannot be chosen"):
        build_network(data_dir / "porto" / "porto.osm.pbf", u_turns=True)
