"""The Dockerfile, as far as it can be checked without an engine: sources, commands, user, health, and the wheel."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer

from tedtrajrec.cli import app
from tedtrajrec.methods.shipped import shipped_models

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, " ".join(rest.split())))
    return found


def values(stage: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for name, rest in stage if name == word]


def sources(stage: list[tuple[str, str]]) -> list[str]:
    """Return what is copied from the repository."""
    return [path for rest in values(stage, "COPY") if not rest.startswith("--from") for path in rest.split()[:-1]]


def test_only_known_instructions(stages):
    build, run = {"FROM", "ARG", "ENV", "WORKDIR", "RUN", "COPY"}, {"EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "CMD"}
    assert {word for word, _ in stages[0]} <= build
    assert {word for word, _ in stages[1]} <= build | run | {"LABEL", "USER", "ENTRYPOINT"}


def test_what_is_copied_is_there_and_not_ignored(stages):
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    for path in sources(stages[0]):
        assert (ROOT / path).exists(), path
        kept = not any(fnmatch.fnmatch(path, rule) for rule in ignored if rule[0] != "!")
        assert kept or f"!{path}" in ignored, path
    for rule in ignored:
        assert rule[0] != "!" or rule[1:] in sources(stages[0]), f"{rule} lets in what is not copied"
    assert sources(stages[1]) == []
    (copied,) = values(stages[1], "COPY")
    assert copied.split()[0] == f"--from={values(stages[0], 'FROM')[0].split()[-1]}"
    assert f"venv {copied.split()[1]}" in " ".join(values(stages[0], "RUN"))


def test_both_stages_have_the_python_that_we_test_with(stages):
    images = {values(stage, "FROM")[0].split()[0] for stage in stages}
    assert len(images) == 1
    minor = re.fullmatch(r"python:(3\.\d+)-slim", images.pop())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert minor is not None
    assert f"Programming Language :: Python :: {minor[1]}" in project["classifiers"]
    extras = re.search(r"'\.\[(.*)\]'", " ".join(values(stages[0], "RUN")))
    assert extras is not None
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()


def test_it_does_not_run_as_root(stages):
    (user,) = values(stages[1], "USER")
    assert f"useradd --uid 10001 --no-create-home {user}" in values(stages[1], "RUN")[0]
    last_root = max(i for i, (word, _) in enumerate(stages[1]) if word in ("RUN", "COPY"))
    assert stages[1].index(("USER", user)) > last_root
    environment = dict(pair.split("=", 1) for rest in values(stages[1], "ENV") for pair in shlex.split(rest))
    owned = values(stages[1], "RUN")[0].split()
    assert environment["NUMBA_CACHE_DIR"] in owned
    assert values(stages[1], "WORKDIR")[0] in owned


def test_the_default_command_is_one_of_ours(stages):
    (entry,), (words,) = (map(json.loads, values(stages[1], name)) for name in ("ENTRYPOINT", "CMD"))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry[0] in scripts
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    given = verbs[words[0]].make_context(words[0], words[1:], resilient_parsing=True).params
    assert given["host"] == "0.0.0.0"  # of the container; the engine decides who gets there
    assert str(given["port"]) == values(stages[1], "EXPOSE")[0]
    assert given["model"] in shipped_models()


def test_the_commands_of_its_head_are_real():
    lines = re.findall(r"^# +docker run .*tedtrajrec (\w.*)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in (line for line in lines if not line.startswith("the ")):
        verb, *words = shlex.split(line)
        verbs[verb].make_context(verb, words)


def test_health_is_asked_of_the_service(stages):
    (check,) = values(stages[1], "HEALTHCHECK")
    words = json.loads(check.partition("CMD ")[2])
    address = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", words[-1])
    assert address is not None
    assert address[1] == values(stages[1], "EXPOSE")[0]
    compile(words[-1], "healthcheck", "exec")
    server = "".join(path.read_text() for path in (ROOT / "src/tedtrajrec/server").glob("*.py"))
    assert f'"{address[2]}"' in server


def test_the_wheel_can_be_built_from_what_is_copied(stages, tmp_path):
    for path in sources(stages[0]):
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, tmp_path / path, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / path, tmp_path)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    for part in ("tedtrajrec/cli/serve.py", "tedtrajrec/_models/chengdu/model.safetensors"):
        assert part in names
    assert any(name.startswith("tedtrajrec/maps/page/") for name in names)
