"""Variables that other programs set for libraries of their own stop nothing of Tandem's."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.platform.child_processes.child_environment import child_environment
from tests.support.index_svc.shard_process import ShardProcess

TANDEM = str(Path(sys.executable).with_name("tandem"))
FOREIGN = {
    "PROMETHEUS_MULTIPROC_DIR": "/nowhere/at/all",
    "GRPC_POLL_STRATEGY": "nonsense",
    "GRPC_VERBOSITY": "loud",
    "GRPC_DNS_RESOLVER": "nonsense",
    "OTEL_PYTHON_CONTEXT": "nonsense",
    "OTEL_PROPAGATORS": "nonsense",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OMP_NUM_THREADS": "many",
    "OPENBLAS_NUM_THREADS": "many",
    "PIP_CONFIG_FILE": "/nowhere",
    "MALLOC_ARENA_MAX": "many",
    "LD_LIBRARY_PATH": "/nowhere",
    "LC_ALL": "nonsense",
    "TERM": "nonsense",
    "COLUMNS": "many",
    "CUDA_VISIBLE_DEVICES": "nonsense",
    "https_proxy": "nonsense",
    "PYTHONWARNINGS": "nonsense",
}
# Makes metrics as a service does, and says what one of them holds.
COUNTS = """
import tandem.local.encoding.local_encoder, tandem.local.shard.metrics
import tandem.search.metrics, tandem.local.reranking.metrics
from tandem.chassis.telemetry.metrics import REFUSALS, REGISTRY
REFUSALS.labels("a", "b", "c").inc(3)
labels = {"service": "a", "method": "b", "reason": "c"}
print(REGISTRY.get_sample_value("tandem_rpc_refusals_total", labels))
"""


async def test_a_service_and_the_command_start_with_the_variables_of_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, in a service and in the command."""
    monkeypatch.setattr(os, "environ", os.environ | FOREIGN)
    environment = {name: value for name, value in child_environment().items() if name in FOREIGN}
    monkeypatch.undo()
    process = ShardProcess(tmp_path / "shard", environment=environment)
    try:
        async with await process.ready():
            told = await asyncio.to_thread(
                subprocess.run,
                [TANDEM, "health", f"127.0.0.1:{process.port}"],
                env=os.environ | FOREIGN,
                capture_output=True,
                text=True,
            )
    finally:
        process.kill()

    assert "Traceback" not in process.log() + told.stdout + told.stderr
    assert told.returncode == 0, told.stderr


def test_metrics_stay_in_the_process_and_out_of_another_programs_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
        told = subprocess.run(
            [sys.executable, "-c", COUNTS], env=environment, capture_output=True, text=True
        )

        assert told.stdout == "3.0\n", told.stderr
    assert not list(tmp_path.iterdir())


def test_a_child_gets_no_variable_that_stops_a_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GRPC_POLL_STRATEGY", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "OTHER"):
        monkeypatch.setenv(name, "nonsense")

    kept = child_environment()

    assert kept["OTHER"] == "nonsense"
    assert not {"GRPC_POLL_STRATEGY", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"} & kept.keys()
    monkeypatch.setenv("GRPC_POLL_STRATEGY", "poll")
    assert child_environment()["GRPC_POLL_STRATEGY"] == "poll"
