"""Defines the settings that name what stores a shard's items: LMDB, or an outside engine."""

from dataclasses import dataclass

from tandem.chassis.serve.service import ServiceSettings
from tandem.chassis.settings import AT_LEAST_0, SettingsError, setting
from tandem.remote import engine_metrics  # noqa: F401 (for the table of a service's metrics)

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
    engine_read_url: str = setting(
        "a standby of Postgres that searches and reranks read; empty for the engine itself",
        default="",
        secret=True,
    )
    engine_namespace: str = setting(
        "schema of this shard's tables in Postgres, or first part of its collections' names",
        default="tandem",
    )
    engine_connection_count: int = setting("most connections to the engine at once", default=16)
    attachments: str = setting(
        "file that has another program's tables or collections as indexes, read-only; with it the "
        "engine has no others (docs/attach.md)",
        default="",
    )
    shard_number: int = setting("number of this shard, from 0", within=AT_LEAST_0)
    shard_count: int = setting("number of shards")

    def check_store(self, prefix: str, store_path: str) -> None:
        """Raises SettingsError, with the variables' `prefix`, unless the store is named."""
        if self.engine not in ENGINES:
            raise SettingsError(f"{prefix}ENGINE is {self.engine!r}: set {', '.join(ENGINES)}")
        if self.engine_read_url and self.engine != "pgvector":
            raise SettingsError(f"{prefix}ENGINE_READ_URL is set; {self.engine} has no standby")
        needed, value = (
            ("STORE_PATH", store_path) if self.engine == LMDB else ("ENGINE_URL", self.engine_url)
        )
        if not value:
            raise SettingsError(f"{prefix}{needed} is not set; the engine {self.engine} needs it")
        if self.attachments and (self.engine == LMDB or self.shard_count != 1):
            raise SettingsError(f"{prefix}ATTACHMENTS needs an outside engine, and one shard of it")
