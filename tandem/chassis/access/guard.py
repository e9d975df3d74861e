"""Decides which callers a service admits."""

from __future__ import annotations

import contextvars
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tandem.chassis.access.tokens import Caller, Scope, TokenFile
from tandem.chassis.settings import SettingsError, load, setting
from tandem.chassis.tls import Identity
from tandem.contract.access import ACCESS, AccessRule
from tandem.errors import PermissionDenied, Unauthenticated

_BEARER = "bearer "

_current: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "tandem_caller", default=None
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessSettings:
    """Configures what callers must present."""

    token_file: str = setting("TOML file of the accepted tokens; empty for no tokens", default="")


@dataclass(frozen=True, slots=True)
class Guard:
    """Admits the callers that its files name; without files, everyone."""

    tokens: TokenFile | None = None
    peer_names: frozenset[str] = frozenset()
    access: Mapping[str, AccessRule] = field(default_factory=lambda: ACCESS)
    """Access rules by path. With tokens or names, a path without a rule is refused."""

    @property
    def is_open(self) -> bool:
        """Returns whether every caller is admitted."""
        return self.tokens is None and not self.peer_names

    def access_of(self, path: str) -> AccessRule:
        """Returns who may call the method at `path`; raises PermissionDenied if no caller may."""
        access = self.access.get(path)
        if access is None:
            raise PermissionDenied(caller="anybody", what=f"call {path}")
        return access

    def let_in(self, access: AccessRule, authorization: str | bytes) -> None:
        """Binds the caller with this authorization header to the current task.

        Does nothing for an internal method, or without tokens. Raises Unauthenticated, or
        PermissionDenied if the token lacks the scope.
        """
        if access is AccessRule.INTERNAL or self.tokens is None:
            return
        caller = self.tokens.caller_of(_token(authorization))
        if caller is None:
            raise Unauthenticated(why="its token is unknown")
        caller.check_scope(Scope(access.value))
        bind_caller(caller)


def load_guard_or_exit(identity: Identity | None) -> Guard:
    """Returns the guard by the ACCESS_… variables and the identity's names; for `__main__` only.

    Exits 2 with a message if they are invalid.
    """
    try:
        settings = load(AccessSettings, "ACCESS_", os.environ)
        tokens = TokenFile(Path(settings.token_file)) if settings.token_file else None
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    return Guard(tokens, identity.peer_names if identity else frozenset())


def current_caller() -> Caller | None:
    """Returns the caller of the current call, or None if callers are not identified."""
    return _current.get()


def bind_caller(caller: Caller) -> None:
    """Sets the caller of the current task, in which gRPC runs one call."""
    _current.set(caller)


def _token(authorization: str | bytes) -> str:
    if not isinstance(authorization, str) or not authorization.lower().startswith(_BEARER):
        raise Unauthenticated(why="it has no token")
    return authorization[len(_BEARER) :].strip()
