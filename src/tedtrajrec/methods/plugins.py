"""Methods in files outside of the package.

    load_plugin("toy.py")

runs a Python file and adds the methods that it defines to the registry: each class of it that is a :class:`Method`,
can be made, and has a ``name`` of its own. From then on that name is one of a method like any other. Packages that are
installed need no file to be named: their methods are entry points of the group ``tedtrajrec.methods``; see
:mod:`tedtrajrec.methods.registry`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import existing_file
from tedtrajrec.methods.base import Method
from tedtrajrec.methods.registry import add_method

_loaded: dict[Path, tuple[str, ...]] = {}  # files and the names of their methods


def load_plugin(file: str | Path) -> tuple[str, ...]:
    """Add the methods of a Python file to the registry and return their names; a file is run once.

    Raises
    ------
    InputError
        If the file cannot be run, defines no method, or one whose name is taken.
    """
    path = existing_file(file, "a plug-in: a Python file with a method").resolve()
    if path not in _loaded:
        found = _methods_of(_run(path), path)
        try:
            for cls in found:
                add_method(cls, path.name)
        except ConfigError as error:
            raise InputError(str(error).rstrip("."), file=path, remedy="Give the method another name.") from error
        _loaded[path] = tuple(cls.name for cls in found)
    return _loaded[path]


def loaded_plugins() -> tuple[Path, ...]:
    """Return the files that were loaded, in their order; another process must load them too."""
    return tuple(_loaded)


def _run(path: Path) -> ModuleType:
    """Return a file as a module; settings are read from its type hints, so it must be among the known ones."""
    name = f"tedtrajrec_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None  # noqa: S101  (there is a loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a plug-in may fail in any way
        del sys.modules[name]
        raise InputError(
            f"this plug-in cannot be loaded ({_line(error, path)}{type(error).__name__}: {error})",
            file=path,
            remedy="Correct the file; 'python FILE' shows the whole error.",
        ) from error
    return module


def _line(error: BaseException, path: Path) -> str:
    """Return the last line of the file that an error came by."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f"line {lines[-1]}, " if lines else ""


def _methods_of(module: ModuleType, path: Path) -> list[type[Method[Any]]]:
    own = [value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__]
    found = [cls for cls in own if issubclass(cls, Method) and not inspect.isabstract(cls) and "name" in vars(cls)]
    if found:
        return found
    begun = next((cls for cls in own if issubclass(cls, Method)), None)
    if begun is None:
        problem = "it defines no method"
    elif inspect.isabstract(begun):
        problem = f"class {begun.__name__} does not define {', '.join(sorted(begun.__abstractmethods__))}"
    else:
        problem = f"class {begun.__name__} has no name"
    raise InputError(
        problem, file=path, remedy="A plug-in has a class that is a Method, with a name and what a method must define."
    )
