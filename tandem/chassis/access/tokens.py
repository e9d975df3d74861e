"""Reads bearer tokens from a file: digests, scopes, indexes and quotas.

    [tokens.team-a]
    sha256 = "9f86d081884c7d65…"        # of the token; `tandem token new team-a` makes both
    scopes = ["search", "write"]         # of search, write, admin
    indexes = ["scenes"]                 # or ["*"]
    requests_per_second = 50             # left out: no limit
    pairs_per_second = 2000              # that the cross-encoder reads

The file is read again when it changes; one that does not parse leaves the previous one in use.
"""

import enum
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tandem.chassis.access.token_bucket import TokenBucket
from tandem.chassis.settings import SettingsError
from tandem.chassis.telemetry.log import get_logger
from tandem.contract.generation_ids import alias_of
from tandem.errors import PermissionDenied, QuotaExceeded

log = get_logger()

_LOOK_SECONDS = 1.0
_FIELDS = {"sha256", "scopes", "indexes", "requests_per_second", "pairs_per_second"}
# One search may use this many at once, whatever its token's rate.
_MIN_PAIR_BURST = 200


class Scope(enum.Enum):
    """What a token allows."""

    SEARCH = "search"
    WRITE = "write"
    ADMIN = "admin"


_DEEDS: Mapping[Scope, str] = {
    Scope.SEARCH: "search",
    Scope.WRITE: "store or remove items",
    Scope.ADMIN: "administer indexes",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """One token's entry in the file."""

    name: str
    scopes: frozenset[Scope]
    index_ids: frozenset[str]
    """"*" for all."""
    requests_per_second: float | None = None
    pairs_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """A known caller, with the rest of its quotas."""

    grant: Grant
    requests: TokenBucket | None = None
    pairs: TokenBucket | None = None

    def check_scope(self, scope: Scope) -> None:
        """Raises PermissionDenied."""
        if scope not in self.grant.scopes:
            what = f"{_DEEDS[scope]}: its token lacks the right '{scope.value}'"
            raise PermissionDenied(caller=self.grant.name, what=what)

    def check_index(self, index_id: str) -> None:
        """Raises PermissionDenied; an index's generations are its own."""
        if self.grant.index_ids.isdisjoint((alias_of(index_id), "*")):
            raise PermissionDenied(caller=self.grant.name, what=f"use index {index_id!r}")

    @property
    def searchable_index_ids(self) -> frozenset[str]:
        """Returns the ids of the indexes that the caller may search; "*" for all."""
        return self.grant.index_ids if Scope.SEARCH in self.grant.scopes else frozenset()

    def take_requests(self, count: int, *, may_owe: bool = False) -> None:
        """Raises QuotaExceeded if the quota of calls is used up.

        A request for more than the burst can never succeed, and the error says so. With `may_owe`
        it succeeds once the quota is unused, and later ones wait for as long as it was too much.
        """
        _take(self.requests, count, "calls", may_owe=may_owe)

    def take_pairs(self, count: int) -> None:
        """Raises QuotaExceeded if the quota of pairs is used up."""
        _take(self.pairs, count, "pairs")

    def return_pairs(self, count: int) -> None:
        """Gives back pairs that were not scored."""
        if self.pairs is not None:
            self.pairs.put_back(count)


def _take(bucket: TokenBucket | None, count: int, what: str, *, may_owe: bool = False) -> None:
    if bucket is not None and (seconds := bucket.take(count, may_owe=may_owe)) > 0:
        raise QuotaExceeded(
            what=what,
            rate=bucket.rate,
            retry_delay_seconds=seconds,
            most=None if may_owe or count <= bucket.burst else bucket.burst,
        )


@dataclass
class TokenFile:
    """The current tokens of a file. For one event loop."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _callers: Mapping[str, Caller] = field(default_factory=dict, init=False)
    _stamp: tuple[int, int, int] = field(default=(0, 0, 0), init=False)
    _look_time: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        """Raises SettingsError if the file cannot be used."""
        self._stamp, self._callers = self._look(), self._read()
        self._look_time = self.clock() + _LOOK_SECONDS

    def caller_of(self, token: str) -> Caller | None:
        """Returns the caller with this token, or None."""
        self._follow()
        # By digest, so that timing reveals nothing about the known tokens.
        return self._callers.get(sha256(token.encode("utf-8", "replace")).hexdigest())

    def _follow(self) -> None:
        now = self.clock()
        if now < self._look_time:
            return
        self._look_time = now + _LOOK_SECONDS
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp = stamp
                self._callers = self._read()
                log.info("tokens changed", count=len(self._callers))
        except SettingsError as error:
            log.warning("tokens cannot be used; the previous ones stay", cause=str(error))

    def _look(self) -> tuple[int, int, int]:
        try:
            stat = self.path.stat()
        except OSError as error:
            raise SettingsError(f"token file cannot be read: {error}") from error
        return (stat.st_ino, stat.st_mtime_ns, stat.st_size)

    def _read(self) -> dict[str, Caller]:
        try:
            tables = tomllib.loads(self.path.read_text(encoding="utf-8")).get("tokens", {})
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self.path}: {error}") from error
        before = {caller.grant: caller for caller in self._callers.values()}
        callers: dict[str, Caller] = {}
        for name, table in tables.items():
            digest, grant = _parsed(self.path, name, table)
            if digest in callers:
                raise SettingsError(f"{self.path}: tokens.{name} has another's sha256")
            # An unchanged token keeps the rest of its quotas.
            callers[digest] = before.get(grant) or self._caller(grant)
        return callers

    def _caller(self, grant: Grant) -> Caller:
        requests, pairs = grant.requests_per_second, grant.pairs_per_second
        return Caller(
            grant,
            None if requests is None else TokenBucket(requests, max(requests, 1.0), self.clock),
            None if pairs is None else TokenBucket(pairs, max(pairs, _MIN_PAIR_BURST), self.clock),
        )


def _parsed(path: Path, name: str, table: Any) -> tuple[str, Grant]:  # noqa: ANN401 (TOML's)
    where = f"{path}: tokens.{name}"
    if not isinstance(table, dict):
        raise SettingsError(f"{where} is not a table")
    if unknown := table.keys() - _FIELDS:
        raise SettingsError(f"{where}: {sorted(unknown)[0]} is not known")
    digest = table.get("sha256")
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise SettingsError(f"{where}.sha256 is not a SHA-256 in lower-case hexadecimal")
    try:
        scopes = frozenset(Scope(scope) for scope in table["scopes"])
        index_ids = frozenset(str(each) for each in table["indexes"])
        rates = [table.get(f"{each}_per_second") for each in ("requests", "pairs")]
        grant = Grant(name, scopes, index_ids, *(_rate(rate) for rate in rates))
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"{where}: {error!r}") from error
    return digest, grant


def _rate(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ValueError(f"a rate is {value!r}; it must be above 0")
    return float(value)
