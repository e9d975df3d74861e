"""Tests that a URL whose password was not escaped is refused at the start, without a part of it."""

import pytest

from index_svc.settings import IndexSettings
from tandem.chassis.settings import SettingsError
from tandem.remote.chosen_engine import engine_shard


@pytest.mark.parametrize(
    ("engine", "url"),
    [
        ("pgvector", "postgresql://tandem:se%cret@db.example/tandem"),
        ("pgvector", "postgresql://tandem:pine@secret@db.example/tandem"),
        ("pgvector", "postgresql://tandem:pine/secret@db.example/tandem"),
        ("pgvector", "host=db.example password=pine secret"),
        ("milvus", "http://tandem:pine/secret@milvus.example:19530?objects=file:///tmp/objects"),
        ("milvus", "http://tandem:pine@[secret@milvus.example?objects=file:///tmp/objects"),
    ],
)
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(engine: str, url: str) -> None:
    """What libpq and urllib say of it names parts, and would go to logs and callers."""
    pytest.importorskip({"pgvector": "psycopg", "milvus": "pymilvus"}[engine])
    settings = IndexSettings(shard_number=0, shard_count=1, engine=engine, engine_url=url)

    with pytest.raises(SettingsError) as caught:
        engine_shard(settings)

    message = str(caught.value)
    assert "engine's URL" in message
    assert not any(part in message for part in ("pine", "cret"))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
