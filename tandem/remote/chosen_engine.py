"""Chooses the outside engine that stores and searches a shard's items, by the settings."""

from __future__ import annotations

from tandem.chassis.settings import SettingsError
from tandem.installation import PackageMissing, missing_package
from tandem.remote.index_engine import LMDB, EngineSettings, IndexEngine


def index_engine(settings: EngineSettings) -> IndexEngine | None:
    """Returns the outside engine of the settings, None for lmdb.

    Raises SettingsError for an engine whose client is not installed.
    """
    if settings.engine == LMDB:
        return None
    try:
        # Here, because each engine's client is an extra of its own.
        if settings.engine == "milvus":
            from tandem.remote.milvus.engine import MilvusEngine

            return MilvusEngine(settings)
        from tandem.remote.pgvector.engine import PgvectorEngine
    except ModuleNotFoundError as error:
        missing = PackageMissing(f"the engine {settings.engine}", missing_package(error))
        raise SettingsError(str(missing)) from error
    return PgvectorEngine(settings)
