"""Makes what the services use of Postgres."""

from tandem.remote.index_engine import EngineSettings, IndexEngine
from tandem.remote.pgvector.candidates import PgvectorCandidates
from tandem.remote.pgvector.shard import PgvectorShard


class PgvectorEngine(IndexEngine):
    """Postgres with pgvector, at the url of the settings."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def shard(self) -> PgvectorShard:
        """Returns the shard, for index_svc."""
        return PgvectorShard(self._settings)

    def candidates(self, fingerprint: str) -> PgvectorCandidates:
        """Returns the candidates of indexes of the served model, for rerank_svc."""
        return PgvectorCandidates(self._settings, fingerprint)
