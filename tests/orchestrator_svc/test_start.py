"""Starting the process: bad settings stop it, and say which."""

import os
import subprocess
import sys

import pytest

GOOD = {
    "ORCHESTRATOR_ENCODER_ADDRESS": "127.0.0.1:1",
    "ORCHESTRATOR_INDEX_ADDRESSES": "127.0.0.1:1,127.0.0.1:2",
    "ORCHESTRATOR_RERANK_ADDRESSES": "127.0.0.1:1,127.0.0.1:2",
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ORCHESTRATOR_RERANK_ADDRESSES": "127.0.0.1:1"}, "they name 2 and 1"),
        (
            {"ORCHESTRATOR_INDEX_ADDRESSES": "", "ORCHESTRATOR_RERANK_ADDRESSES": ""},
            "at least one; they name 0 and 0",
        ),
        (
            {"ORCHESTRATOR_INGEST_PENDING_BATCH_COUNT": "0"},
            "ORCHESTRATOR_INGEST_PENDING_BATCH_COUNT must be at least 1",
        ),
        (
            {"ORCHESTRATOR_INGEST_ENCODE_BATCH_COUNT": "0"},
            "ORCHESTRATOR_INGEST_ENCODE_BATCH_COUNT must be at least 1",
        ),
        (
            {"ORCHESTRATOR_SHARD_MAP_VERSION": "0"},
            "ORCHESTRATOR_SHARD_MAP_VERSION must be at least 1",
        ),
        ({"ORCHESTRATOR_MINIMUM_COVERAGE": "50"}, "ORCHESTRATOR_MINIMUM_COVERAGE must be a share"),
        (
            {"ORCHESTRATOR_RETRIEVAL_TIME_SHARE": "0"},
            "ORCHESTRATOR_RETRIEVAL_TIME_SHARE must be a share",
        ),
        ({"ORCHESTRATOR_RESERVE_TIME_SHARE": "1"}, "ORCHESTRATOR_RESERVE_TIME_SHARE must be a"),
        (
            {"ORCHESTRATOR_RERANK_CHUNK_PAIR_COUNT": "0"},
            "ORCHESTRATOR_RERANK_CHUNK_PAIR_COUNT must be at least 1",
        ),
    ],
)
def test_settings_that_cannot_work_stop_the_start(changes: dict[str, str], told: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "orchestrator_svc"],
        env=os.environ | GOOD | changes,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode != 0
    assert told in ended.stderr
