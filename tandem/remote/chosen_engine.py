"""Chooses the outside engine that stores and searches a shard's items, by the settings.

An engine is a package in this folder, which is imported only where the settings name it: its client
comes with an extra.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tandem.chassis.settings import SettingsError
from tandem.installation import PackageMissing, missing_package
from tandem.remote.index_engine import EngineSettings
from tandem.stages.candidate_store import CandidateStore

if TYPE_CHECKING:  # Shards bring index_svc's metrics, which rerank_svc does not have.
    from tandem.remote.attached.shard import AttachedShard
    from tandem.remote.engine_shard import EngineShard


def engine_shard(settings: EngineSettings) -> "EngineShard | None":
    """Returns the shard in the engine of the settings, None for lmdb; nothing connects yet.

    Raises SettingsError for an engine whose client is not installed, and for a URL that it cannot
    read.
    """
    with _client_installed(settings.engine):
        match settings.engine:
            case "milvus" | "pgvector" if settings.attachments:
                return _attached_shard(settings)
            case "milvus":
                from tandem.remote.milvus.shard import MilvusShard

                return MilvusShard(settings)
            case "pgvector":
                from tandem.remote.pgvector.shard import PgvectorShard

                return PgvectorShard(settings)
    return None


def engine_candidates(settings: EngineSettings, fingerprint: str) -> CandidateStore | None:
    """Returns the candidates of indexes of the served model; otherwise as `engine_shard`."""
    with _client_installed(settings.engine):
        match settings.engine:
            case "milvus" | "pgvector" if settings.attachments:
                from tandem.remote.attached.shard import AttachedCandidates

                return AttachedCandidates(_attached_shard(settings), fingerprint)
            case "milvus":
                from tandem.remote.milvus.candidates import MilvusCandidates

                return MilvusCandidates(settings, fingerprint)
            case "pgvector":
                from tandem.remote.pgvector.candidates import PgvectorCandidates

                return PgvectorCandidates(settings, fingerprint)
    return None


def _attached_shard(settings: EngineSettings) -> "AttachedShard":
    if settings.engine == "milvus":
        from tandem.remote.attached.milvus import AttachedMilvusShard

        return AttachedMilvusShard(settings)
    from tandem.remote.attached.pgvector import AttachedPgvectorShard

    return AttachedPgvectorShard(settings)


@contextmanager
def _client_installed(engine: str) -> Iterator[None]:
    """Is around the import of an engine, because each engine's client is an extra of its own."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = PackageMissing(f"the engine {engine}", missing_package(error))
        raise SettingsError(str(missing)) from error
