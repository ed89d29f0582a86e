import json
from dataclasses import dataclass, field
from typing import Literal

import pytest

from tedtrajrec.config import from_dict, load_config, to_dict
from tedtrajrec.errors import ConfigError, InputError


@dataclass(frozen=True)
class Noise:
    sigma_m: float = 4.0
    kind: Literal["plain", "correlated"] = "plain"

    def __post_init__(self) -> None:
        if self.sigma_m < 0:
            raise ValueError("sigma_m must not be negative")


@dataclass(frozen=True)
class Settings:
    days: int = 1
    name: str = "x"
    strict: bool = False
    hours: tuple[float, ...] = (1.0, 2.0)
    pair: tuple[int, str] = (1, "a")
    speed: dict[str, float] = field(default_factory=dict)
    limit: float | None = None
    noise: Noise = Noise()
    loud: Noise = Noise(9.0, "correlated")


def test_part_of_a_nested_default_can_be_set():
    assert load_config(Settings, None, ["loud.sigma_m=7"]).loud == Noise(7.0, "correlated")


def test_defaults_file_and_overrides_in_that_order(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("days = 3\nhours = [1, 2.5]\n[noise]\nsigma_m = 5\n[speed]\nmotorway = 30\n")
    config = load_config(Settings, path, ["days=4", "noise.kind=correlated", "name=Porto", "limit=2", "strict=true"])
    assert config == Settings(
        4, "Porto", strict=True, hours=(1.0, 2.5), speed={"motorway": 30.0}, limit=2.0, noise=Noise(5.0, "correlated")
    )
    assert isinstance(config.noise.sigma_m, float)
    assert load_config(Settings) == Settings()


def test_a_config_survives_json():
    config = Settings(hours=(3.0,), speed={"a": 1.0}, noise=Noise(2.0))
    assert from_dict(Settings, json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dayz=3", "Unknown setting 'dayz'. Known here: days"),
        ("noise.sigma=3", "Unknown setting 'noise.sigma'"),
        ("days=3.5", "'days' is 3.5; it must be of type int"),
        ("days=true", "'days' is True; it must be of type int"),
        ("strict=1", "'strict' is 1; it must be of type bool"),
        ("noise.sigma_m=-1", "noise: sigma_m must not be negative"),
        ("noise.kind=loud", "'noise.kind' is 'loud'; it must be one of 'plain', 'correlated'"),
        ("hours=[1,'a']", r"'hours\[1\]' is 'a'; it must be of type float"),
        ("pair=[1]", "'pair' has 1 values; it takes 2"),
        ("speed.motorway=fast", "'speed.motorway' is 'fast'; it must be of type float"),
        ("days", "not of the form key=value"),
        ("noise=3", "'noise' is 3; it must be of type Noise"),
    ],
)
def test_wrong_settings_are_named(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(Settings, None, [override])


def test_an_override_below_a_plain_value(tmp_path):
    (tmp_path / "c.toml").write_text("days = 3")
    with pytest.raises(ConfigError, match="goes below 'days'"):
        load_config(Settings, tmp_path / "c.toml", ["days.x=3"])


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "c.toml").write_text("days = = 3")
    with pytest.raises(InputError, match=r"c\.toml: this is not valid TOML"):
        load_config(Settings, tmp_path / "c.toml")
