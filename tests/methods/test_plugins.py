"""Methods in files outside of the package, and those of installed packages."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tedtrajrec.cli import main
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods import plugins, registry
from tedtrajrec.methods.plugins import load_plugin, loaded_plugins
from tedtrajrec.methods.registry import METHODS, Family, Needs, make_method, method_class, method_entry, method_names
from tedtrajrec.network.roadnet import RoadNetwork

TOY = '''
"""A method of a researcher."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Method, Recovered


@dataclass(frozen=True)
class ToyConfig:
    """Settings."""

    segment: int = 0


class Toy(Method[ToyConfig]):
    """Everybody is always on one segment."""

    name = "toy"
    Config = ToyConfig

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step."""
        shape = batch.step_mask.shape
        return Recovered(
            torch.full(shape, self.config.segment), torch.full(shape, 0.5), torch.full(shape, float("nan"))
        )
'''


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave no method behind for other tests."""
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.setattr(plugins, "_loaded", {})
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def written(folder: Path, text: str = TOY, name: str = "toy.py") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_file_adds_a_method(tmp_path: Path, tiny_city: RoadNetwork) -> None:
    file = written(tmp_path)
    assert load_plugin(file) == ("toy",)
    assert load_plugin(str(file)) == ("toy",)  # a second time it is known
    assert loaded_plugins() == (file.resolve(),)
    assert method_names() == (*METHODS, "toy")
    assert method_entry("toy") == registry.Entry("Toy", Family.PLUGIN, Needs.NOTHING, "toy.py")
    assert make_method("toy", tiny_city, ["segment=3"]).config.segment == 3
    with pytest.raises(ConfigError, match="Unknown setting 'segments'"):
        make_method("toy", tiny_city, ["segments=3"])


def test_what_a_method_needs_is_told_from_its_class(tmp_path: Path) -> None:
    more = "\n    def precompute(self, dataset):\n        pass\n"
    load_plugin(written(tmp_path, TOY + more))
    assert method_entry("toy").needs is Needs.PAST
    learned = (
        "from tedtrajrec.methods.mtrajrec import MTrajRec\n\n"
        "class Wider(MTrajRec):\n    '''MTrajRec of a researcher.'''\n\n    name = 'wider'\n"
    )
    assert load_plugin(written(tmp_path, learned, "wider.py")) == ("wider",)
    assert method_entry("wider").needs is Needs.TRAINING


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "it defines no method"),
        ("from tedtrajrec.methods.lookup import Lookup\n", "it defines no method"),
        ("def broken(:\n", r"line 1, SyntaxError"),
        ("import math\n\nmath.sqrt(-1)\n", r"line 3, ValueError: math domain error"),
        ("import nothing_of_this_name\n", "line 1, ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (TOY.replace('    name = "toy"\n', ""), "class Toy has no name"),
        (TOY.replace("def recover", "def find"), "class Toy does not define recover"),
        (TOY.replace('"toy"', '"lookup"'), "another method named 'lookup'"),
        (TOY.replace('"toy"', '"my toy"'), "is named 'my toy'"),
    ],
)
def test_a_file_that_is_no_plugin_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_plugin(written(tmp_path, text))
    assert "toy.py" in str(caught.value)
    assert loaded_plugins() == ()


def test_two_files_with_one_name(tmp_path: Path) -> None:
    load_plugin(written(tmp_path))
    with pytest.raises(InputError, match="another method named 'toy'"):
        load_plugin(written(tmp_path, TOY, "other.py"))
    with pytest.raises(InputError, match="there is no such file"):
        load_plugin(tmp_path / "missing.py")


def test_entry_points_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, TOY, "toy_package.py")
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("toy", "toy_package:Toy", registry.GROUP),
        EntryPoint("gone", "toy_package:Gone", registry.GROUP),
        EntryPoint("other", "toy_package:Toy", registry.GROUP),
        EntryPoint("lookup", "toy_package:Toy", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: [p for p in points if p.group == group])
    assert method_names() == (*METHODS, "toy", "gone", "other")
    assert "toy_package" not in sys.modules
    assert method_class("toy").name == "toy"
    assert method_entry("toy").paper == "toy_package"
    assert method_class("lookup").__module__ == "tedtrajrec.methods.lookup"
    with pytest.raises(ConfigError, match="'gone' of package toy_package cannot be loaded"):
        method_class("gone")
    with pytest.raises(ConfigError, match="'other' of package toy_package is not a method of that name"):
        method_class("other")
    del sys.modules["toy_package"]


def test_the_group_of_entry_points_is_the_one_that_is_documented() -> None:
    assert registry.GROUP == "tedtrajrec.methods"
    assert list(importlib.metadata.entry_points(group=registry.GROUP)) == []


def test_verbs_take_a_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["methods", "--plugin", str(written(tmp_path))])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"{'toy':<21}Everybody is always on one segment."
    assert lines[-1].strip() == "plug-in · needs nothing · toy.py · not documented here"
    with pytest.raises(SystemExit) as stop:
        main(["train", "toy", str(tmp_path), "-o", str(tmp_path / "run"), "--plugin", str(tmp_path / "toy.py")])
    assert stop.value.code == 2
    assert "toy learns nothing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", "toy", str(tmp_path), "--plugin", str(written(tmp_path, "1 / 0\n", "bad.py"))])
    assert "bad.py: this plug-in cannot be loaded (line 1, ZeroDivisionError" in capsys.readouterr().err
