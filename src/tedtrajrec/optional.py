"""Libraries that come with an extra of the package, loaded when asked for."""

from __future__ import annotations

import importlib
from types import ModuleType

from tedtrajrec.errors import TedtrajrecError


def load_optional(name: str, extra: str) -> ModuleType:
    """Return the library ``name``, or raise :class:`TedtrajrecError` that says which extra brings it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TedtrajrecError(f"This needs {name}: pip install 'tedtrajrec[{extra}]' brings it.") from error
