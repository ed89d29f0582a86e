"""Writes the hashes of all pinned packages (requirements-hashes.txt) and the bill of materials (sbom.cdx.json).

    python faults/supply_chain.py INDEX [--wheels FOLDER]

INDEX is the address of a package index (PEP 503), such as the one pip uses. A package gets the hashes
of all its files there that an interpreter of ours may choose, and of files in ``--wheels``: the CPU build of torch
is not the published one, and ``pip install --require-hashes`` must take either. The bill of materials (CycloneDX 1.6)
lists the environment this runs in: versions, licences as the packages state them, and what depends on what.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OURS = re.compile(r"(py3|py2\.py3|cp3\d+-abi3|cp311-cp311|cp312-cp312)[^/]*(any|linux[^/]*)\.whl$|\.tar\.gz$")


def plain(name: str) -> str:
    """Return the name of a package as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> list[tuple[str, str]]:
    """Return the packages of constraints.txt with their versions."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [(plain(name), version) for name, _, version in (line.partition("==") for line in lines) if version]


def hashes_of(index: str, name: str, version: str, wheels: Path | None) -> list[str]:
    """Return the hashes of the files of a package."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as answer:
        files = re.findall(r'/([^/"#]+)#sha256=([0-9a-f]{64})', answer.read().decode())
    start = re.compile(rf"{name.replace('-', '[-_.]')}-{re.escape(version)}[-.](?!\d)", re.IGNORECASE)
    found = {value for file, value in files if start.match(file) and OURS.search(file)}
    for wheel in () if wheels is None else wheels.glob("*.whl"):
        if re.match(rf"{name.replace('-', '[-_.]')}-{re.escape(version)}(\+\w+)?-", wheel.name, re.IGNORECASE):
            with wheel.open("rb") as file:
                found.add(hashlib.file_digest(file, "sha256").hexdigest())
    return sorted(found)


def requirements(index: str, wheels: Path | None) -> str:
    """Return a file for ``pip install --require-hashes``."""
    lines = ["# Hashes of constraints.txt, for pip install --require-hashes. Made by faults/supply_chain.py."]
    lines.append("# torch: the published build and the CPU build.")
    for name, version in pins():
        found = hashes_of(index, name, version, wheels)
        if not found:
            raise SystemExit(f"{name} {version}: the index has no file of it")
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{value}" for value in found)]))
    return "\n".join(lines) + "\n"


def reference_of(package: importlib.metadata.Distribution) -> str:
    """Return the address of a package; a build of our own machine is not told apart."""
    return f"pkg:pypi/{plain(package.metadata['Name'])}@{package.version.partition('+')[0]}"


def bill_of_materials() -> dict[str, Any]:
    """Return the packages of this environment as CycloneDX, without dates or random numbers."""
    wanted = {name for name, _ in pins()}
    found = {plain(d.metadata["Name"]): d for d in importlib.metadata.distributions()}
    components, depends = [], []
    for name in sorted(wanted & found.keys()):
        package = found[name]
        version, reference = package.version.partition("+")[0], reference_of(package)
        licence = _stated(package, "License-Expression") or _classified(package)
        component = {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}
        components.append({**component, "licenses": [{"license": {"name": licence}}]})
        needs = {plain(re.split(r"[ ;<>=!~\[(]", text)[0]) for text in package.requires or () if "extra ==" not in text}
        depends.append(
            {
                "ref": reference,
                "dependsOn": [reference_of(found[need]) for need in sorted(needs & wanted & found.keys())],
            }
        )
    ours = importlib.metadata.version("tedtrajrec")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "tedtrajrec", "version": ours}},
        "components": components,
        "dependencies": depends,
    }


def _classified(package: importlib.metadata.Distribution) -> str:
    classifiers = package.metadata.get_all("Classifier") or []
    licences = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    return ", ".join(licences) or _stated(package, "License").split("\n")[0].strip()[:80] or "not stated"


def _stated(package: importlib.metadata.Distribution, field: str) -> str:
    return str((package.metadata.get_all(field) or [""])[0])


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("index")
    parser.add_argument("--wheels", type=Path)
    given = parser.parse_args()
    (ROOT / "sbom.cdx.json").write_text(json.dumps(bill_of_materials(), indent=1) + "\n")
    (ROOT / "requirements-hashes.txt").write_text(requirements(given.index, given.wheels))


if __name__ == "__main__":
    main()
