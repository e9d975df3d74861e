"""What a service demands of its callers."""

from __future__ import annotations

import contextvars
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tandem.chassis.settings import SettingsError, load, setting
from tandem.chassis.tls import Identity
from tandem.chassis.tokens import Caller, TokenFile
from tandem.contract.access import ACCESS, Access

_current: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "tandem_caller", default=None
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessSettings:
    """What callers need to have."""

    token_file: str = setting(
        "TOML file with the tokens that are let in; empty asks for none", default=""
    )


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets in whom its files name; without files, everybody."""

    tokens: TokenFile | None = None
    peer_names: frozenset[str] = frozenset()
    access: Mapping[str, Access] = field(default_factory=lambda: ACCESS)
    """By path of the call. Once there are tokens or names, nobody may call what is not here."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked of anybody."""
        return self.tokens is None and not self.peer_names


def load_guard_or_exit(identity: Identity | None) -> Guard:
    """Returns the guard by ACCESS_… variables and the identity's names; for `__main__` alone.

    Where they are at fault, says so on stderr and exits 2.
    """
    try:
        settings = load(AccessSettings, "ACCESS_", os.environ)
        tokens = TokenFile(Path(settings.token_file)) if settings.token_file else None
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    return Guard(tokens, identity.peer_names if identity else frozenset())


def current_caller() -> Caller | None:
    """Returns who makes the call being served; None where nobody was asked."""
    return _current.get()


def bind_caller(caller: Caller) -> None:
    """Notes who makes the current task's call. gRPC runs every call in a task of its own."""
    _current.set(caller)
