"""Starting the process: bad settings stop it, and say which."""

import os
import runpy
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
        ({"ORCHESTRATOR_NEXT_ENCODER_ADDRESS": "127.0.0.1:1"}, "it names 0"),
        ({"ORCHESTRATOR_NEXT_RERANK_ADDRESSES": "127.0.0.1:1,127.0.0.1:1"}, "and none without"),
        (
            {"ORCHESTRATOR_INGEST_PENDING_BATCH_COUNT": "0"},
            "ORCHESTRATOR_INGEST_PENDING_BATCH_COUNT must be at least 1",
        ),
        ({"ORCHESTRATOR_MINIMUM_COVERAGE": "50"}, "ORCHESTRATOR_MINIMUM_COVERAGE must be a share"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    told: str,
) -> None:
    """In this process, which has imported what a start imports."""
    for name, value in (GOOD | changes).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["orchestrator_svc"])
    monkeypatch.delitem(sys.modules, "orchestrator_svc.__main__", raising=False)

    with pytest.raises(SystemExit) as ended:
        runpy.run_module("orchestrator_svc", run_name="__main__")

    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_process_that_cannot_start_ends_with_its_reason() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "orchestrator_svc"],
        env=os.environ | GOOD | {"ORCHESTRATOR_MINIMUM_COVERAGE": "50"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 2
    assert "ORCHESTRATOR_MINIMUM_COVERAGE must be a share" in ended.stderr
    assert "Traceback" not in ended.stderr
