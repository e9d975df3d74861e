"""Defines what an outside engine, which stores and searches a shard's items, is to the services.

An engine is a package in this folder; `chosen_engine` imports the one that the settings name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tandem.chassis.serve.service import ServiceSettings
from tandem.chassis.settings import AT_LEAST_0, SettingsError, setting
from tandem.contract.deadline import Deadline
from tandem.errors import InternalFault
from tandem.remote import engine_metrics  # noqa: F401 (for the table of a service's metrics)
from tandem.stages.candidate_store import CandidateStore
from tandem.stages.changes import ChangePage, FollowedShard
from tandem.stages.item_write import Committed, Fence
from tandem.stages.shard import Shard

LMDB = "lmdb"
ENGINES = (LMDB, "pgvector", "milvus")
ESCAPED_PASSWORD = "write %, @, / and # of a password as %25, %40, %2F and %23"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings(ServiceSettings):
    """Names where a shard's items are; index_svc and rerank_svc have the same."""

    engine: str = setting(
        "what stores the items: lmdb (a folder on index_svc's disk), pgvector (Postgres) or milvus",
        default=LMDB,
    )
    engine_url: str = setting(
        "how to reach the engine, password included; required unless the engine is lmdb",
        default="",
        secret=True,
    )
    engine_namespace: str = setting(
        "schema of this shard's tables in Postgres, or first part of its collections' names",
        default="tandem",
    )
    engine_connection_count: int = setting("most connections to the engine at once", default=16)
    shard_number: int = setting("number of this shard, from 0", within=AT_LEAST_0)
    shard_count: int = setting("number of shards")

    def check_store(self, prefix: str, store_path: str) -> None:
        """Raises SettingsError, with the variables' `prefix`, unless the store is named."""
        if self.engine not in ENGINES:
            raise SettingsError(f"{prefix}ENGINE is {self.engine!r}: set {', '.join(ENGINES)}")
        needed, value = (
            ("STORE_PATH", store_path) if self.engine == LMDB else ("ENGINE_URL", self.engine_url)
        )
        if not value:
            raise SettingsError(f"{prefix}{needed} is not set; the engine {self.engine} needs it")


class EngineShard(Shard, FollowedShard, Protocol):
    """A shard in an outside engine, over connections of this process."""

    async def open(self) -> None:
        """Connects, and makes the namespace where it is missing.

        Raises ServiceUnavailable, with the engine's reason, until it succeeds, and StoreRefused
        where a namespace is another shard's or of another version.
        """
        ...

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns changes after a sequence; by default the engine keeps no log of them."""
        raise InternalFault(why="this engine keeps no change log, and cannot be moved from or to")

    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins, seals or ends a fence; by default the engine has none."""
        raise InternalFault(why="this engine has no fence, and cannot be moved from")

    async def check(self) -> None:
        """Raises ServiceUnavailable, with the engine's reason, while it does not answer."""
        ...

    async def close(self) -> None:
        """Closes the connections; no call may be in flight."""
        ...


class IndexEngine(Protocol):
    """Makes what the services use of an engine; nothing connects yet."""

    def shard(self) -> EngineShard:
        """Returns the shard, for index_svc."""
        ...

    def candidates(self, fingerprint: str) -> CandidateStore:
        """Returns the candidates of indexes of the served model, for rerank_svc."""
        ...
