"""Makes what the services use of Postgres."""

import psycopg

from tandem.chassis.settings import SettingsError
from tandem.remote.index_engine import ESCAPED_PASSWORD, EngineSettings, IndexEngine
from tandem.remote.pgvector.candidates import PgvectorCandidates
from tandem.remote.pgvector.shard import PgvectorShard


class PgvectorEngine(IndexEngine):
    """Postgres with pgvector, at the url of the settings."""

    def __init__(self, settings: EngineSettings) -> None:
        """Raises SettingsError for a URL that libpq cannot read."""
        try:
            known = psycopg.conninfo.conninfo_to_dict(settings.engine_url)
        except psycopg.ProgrammingError:  # whose text has a part of it, maybe of the password
            known = {"host": "@"}
        if any("@" in str(known.get(name)) for name in ("host", "dbname")):
            raise SettingsError(f"libpq cannot read the engine's URL: {ESCAPED_PASSWORD}")
        self._settings = settings

    def shard(self) -> PgvectorShard:
        """Returns the shard, for index_svc."""
        return PgvectorShard(self._settings)

    def candidates(self, fingerprint: str) -> PgvectorCandidates:
        """Returns the candidates of indexes of the served model, for rerank_svc."""
        return PgvectorCandidates(self._settings, fingerprint)
