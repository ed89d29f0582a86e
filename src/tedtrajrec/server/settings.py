"""What the service is told: the model or network, where to listen, and its limits; also from the environment."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tedtrajrec.errors import ConfigError


class Limits(BaseModel):
    """The most that one request may ask for, and how much may wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body_bytes: int = Field(default=16 << 20, ge=1024)
    held_bytes: int = Field(default=256 << 20, ge=1024)  # of all bodies that are being received or parsed
    body_seconds: float = Field(default=30.0, gt=0)  # to send the body
    trips: int = Field(default=5_000, ge=1)
    points: int = Field(default=200_000, ge=1)
    steps: int = Field(default=1_000_000, ge=1)  # of the answer, counted before the work
    segments: int = Field(default=200_000, ge=1)  # of the network in one answer
    seconds: float = Field(default=60.0, gt=0)  # to wait for the answer
    waiting: int = Field(default=64, ge=1)  # requests; the next one is told to come back
    batch_trips: int = Field(default=64, ge=1)  # recovered together when several requests wait


class ServerSettings(BaseSettings):
    """Settings of the service; each is also read from ``TEDTRAJREC_<NAME>``, limits from ``TEDTRAJREC_LIMITS__<NAME>``.

    One of ``model`` and ``network`` is needed; with a model, the network is the one it was trained on if not given.
    """

    model_config = SettingsConfigDict(env_prefix="TEDTRAJREC_", env_nested_delimiter="__", frozen=True, extra="forbid")

    model: str | None = None  # run folder, or the name of a model that comes with tedtrajrec
    network: Path | None = None
    method: str = "route_hmm"  # without a model
    step_s: int = Field(default=15, ge=1, le=3600)  # without a model
    timezone: str = "UTC"  # of the city, without a model
    device: str = "auto"
    decode: Literal["feasible", "greedy"] = "feasible"
    examples: Path | None = None  # sparse trips for the page
    truth: Path | None = None  # the same trips, dense
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    hosts: tuple[str, ...] = ()  # further names that a service for this machine is reached by, such as of a proxy
    workers: int = Field(default=1, ge=1, le=256)
    token: SecretStr | None = None
    token_file: Path | None = None
    shutdown_seconds: int = Field(default=30, ge=0)  # for requests that are being answered
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model is None and self.network is None:
            raise ValueError("give a run folder, or --network with a road network made by 'network build'")
        if self.truth is not None and self.examples is None:
            raise ValueError("--truth needs --examples")
        if self.token is not None and self.token_file is not None:
            raise ValueError("give the token itself or --token-file, not both")
        return self

    @property
    def is_open(self) -> bool:
        """Whether others than this machine can reach the service."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def served_hosts(self) -> frozenset[str] | None:
        """Names in the header Host that are answered; None: any."""
        if self.is_open:
            return None
        own = f"[{self.host}]" if ":" in self.host else self.host
        return frozenset({own.lower(), "localhost", "127.0.0.1", "[::1]", *(name.lower() for name in self.hosts)})

    def read_token(self) -> str | None:
        """Return the token that clients must send, or None if there is none."""
        if self.token_file is None:
            token = None if self.token is None else self.token.get_secret_value().strip()
        else:
            try:
                token = self.token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"The token cannot be read from {self.token_file}.") from error
        if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
            raise ConfigError(
                "The token must be at least 16 printable ASCII signs without spaces; 'openssl rand -hex 32' makes one."
            )
        return token


def make_settings(**given: Any) -> ServerSettings:  # noqa: ANN401  (the fields above)
    """Return settings from those given and, for the others (or None), the environment.

    Raises
    ------
    ConfigError
        If one of them is impossible.
    """
    try:
        return ServerSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"Setting {name}: {message}." if name else f"{message[0].upper()}{message[1:]}.") from error
