"""Reports how far the standbys of Postgres are behind."""

from contextlib import suppress

import psycopg

from tandem.remote.engine_metrics import STANDBY_LAG_BYTES
from tandem.remote.pgvector.connections import Row, Session

# A user without pg_read_all_stats sees the standbys without their positions.
_LAG = """
SELECT application_name, max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))
FROM pg_stat_replication WHERE replay_lsn IS NOT NULL AND NOT pg_is_in_recovery() GROUP BY 1
"""


async def note_standby_lag(session: Session) -> None:
    """Sets the lag of each standby; of none where Postgres does not tell."""
    rows: list[Row] = []
    with suppress(psycopg.Error):  # Some managed servers have no such function.
        rows = await session.rows(_LAG)
    STANDBY_LAG_BYTES.clear()
    for name, lag_bytes in rows:
        STANDBY_LAG_BYTES.labels(name).set(float(lag_bytes))
