"""Settings are frozen dataclasses, filled from TOML and ``a.b=3`` overrides.

A dataclass lives beside the code it configures; this module only fills it. An unknown key, a wrong type or a value
that the class refuses is a :class:`ConfigError` that names the key.
"""

from __future__ import annotations

import dataclasses
import datetime
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import existing_file

C = TypeVar("C")


def load_config(
    cls: type[C], path: str | Path | None = None, overrides: Iterable[str] = (), *, base: C | None = None
) -> C:
    """Fill the dataclass ``cls`` from a TOML file and ``key=value`` overrides, which win.

    Parameters
    ----------
    cls
        A frozen dataclass; its fields may be dataclasses themselves.
    path
        A TOML file, or nothing for the defaults of the class.
    overrides
        Texts such as ``noise.drift_m=4.5``; the value is read as TOML, or as plain text where it is none.
    base
        Values in place of the defaults of the class, for classes without nested ones.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(existing_file(path, "a TOML settings file").read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"this is not valid TOML ({error})", file=path) from error
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"Setting '{override}' is not of the form key=value, for example noise.drift_m=4.5.")
        _put(values, key.strip().split("."), _parse(text.strip()))
    return from_dict(cls, values if base is None else {**to_dict(base), **values})


def from_dict(cls: type[C], values: Mapping[str, Any], where: str = "") -> C:
    """Fill the dataclass ``cls`` from nested mappings, strictly."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"Settings {where.rstrip('.') or cls.__name__} are {values!r}, not names with values.")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(typing.cast("Any", cls)) if f.init}
    for key in values:
        if key not in fields:
            known = ", ".join(sorted(fields))
            raise ConfigError(f"Unknown setting '{where}{key}'. Known here: {known}.")
    arguments = {
        key: _convert(hints[key], _with_default(fields[key], value), f"{where}{key}") for key, value in values.items()
    }
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ConfigError(f"Setting {where.rstrip('.') or cls.__name__}: {error}.") from error
    except TypeError as error:
        raise ConfigError(f"Settings {where.rstrip('.') or cls.__name__} are incomplete: {error}.") from error


def to_dict(config: Any) -> dict[str, Any]:  # noqa: ANN401  (any dataclass)
    """Return a config as nested plain values, fit for JSON; ``from_dict`` reads it back."""
    return dataclasses.asdict(config)


def completed(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values with the defaults of settings that they lack: those that came after they were written."""
    return to_dict(from_dict(cls, values))


def _with_default(field: dataclasses.Field[Any], value: Any) -> Any:  # noqa: ANN401
    """Return the values of a nested dataclass, completed from the default of the field (not of its class)."""
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if not isinstance(value, Mapping) or not dataclasses.is_dataclass(default):
        return value
    own = {f.name: getattr(default, f.name) for f in dataclasses.fields(default) if f.init}
    return {**own, **value}


def _put(values: dict[str, Any], keys: list[str], value: Any) -> None:  # noqa: ANN401
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError(f"Setting '{'.'.join(keys)}' goes below '{key}', which is a plain value.")
    values[keys[-1]] = value


def _parse(text: str) -> Any:  # noqa: ANN401
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(hint: Any, value: Any, key: str) -> Any:  # noqa: ANN401
    """Return ``value`` as the type ``hint``, or raise; only int -> float is converted silently."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ConfigError(f"Setting '{key}' is a whole number that 64 bits do not hold.")
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        choices = [h for h in typing.get_args(hint) if h is not type(None)]
        return None if value is None else _convert(choices[0], value, key)
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            raise ConfigError(
                f"Setting '{key}' is {value!r}; it must be one of {', '.join(map(repr, typing.get_args(hint)))}."
            )
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_dict(typing.cast("type[Any]", hint), value, f"{key}.")
    if origin is tuple and isinstance(value, list | tuple):
        inner = typing.get_args(hint)
        if len(inner) == 2 and inner[1] is Ellipsis:
            inner = (inner[0],) * len(value)
        if len(inner) != len(value):
            raise ConfigError(f"Setting '{key}' has {len(value)} values; it takes {len(inner)}.")
        return tuple(_convert(h, v, f"{key}[{i}]") for i, (h, v) in enumerate(zip(inner, value, strict=True)))
    if origin is dict and isinstance(value, Mapping):
        return {str(k): _convert(typing.get_args(hint)[1], v, f"{key}.{k}") for k, v in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is str and isinstance(value, datetime.date):  # TOML reads 2024-05-14 as a date
        return value.isoformat()
    plain = origin or hint
    if isinstance(plain, type) and isinstance(value, plain) and not (plain is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"Setting '{key}' is {value!r}; it must be of type {getattr(hint, '__name__', hint)}.")
