"""Decides which callers a service admits."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tandem.chassis.access.callers import bind_caller
from tandem.chassis.access.tokens import Scope, TokenFile
from tandem.chassis.settings import exiting_on_faults, load, setting
from tandem.chassis.tls import Identity
from tandem.contract.methods import ACCESS, AccessRule
from tandem.errors import PermissionDenied, Unauthenticated

_BEARER = "bearer "


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
    with exiting_on_faults():
        settings = load(AccessSettings, "ACCESS_", os.environ)
        tokens = TokenFile(Path(settings.token_file)) if settings.token_file else None
    return Guard(tokens, identity.peer_names if identity else frozenset())


def _token(authorization: str | bytes) -> str:
    if not isinstance(authorization, str) or not authorization.lower().startswith(_BEARER):
        raise Unauthenticated(why="it has no token")
    return authorization[len(_BEARER) :].strip()
