"""What the local stack says when it cannot start."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.errors import TandemError
from tandem.stack.stack import LocalStack, Ports, StackFailed
from tandem.triton.server import TritonUnavailable, core_count
from tests.support.triton.odd_models import write_echo


def test_admission_is_sized_by_the_cores(tmp_path: Path) -> None:
    """Twelve a core, 16 at least; a number that is given goes before."""
    name, ports = "ORCHESTRATOR_MAX_INFLIGHT_COUNT", Ports.free(shard_count=1)
    stack = LocalStack(tmp_path, tmp_path, ports)
    told = LocalStack(tmp_path, tmp_path, ports, settings={name: "5"})

    assert int(stack.command("orchestrator")[1][name]) == max(16, 12 * core_count())
    assert told.command("orchestrator")[1][name] == "5"
    assert name not in stack.command("encoder")[1]


def test_services_that_only_services_call_ask_for_no_token(tmp_path: Path) -> None:
    """An encoder with a token file refuses the orchestrator, which then describes no model."""
    given = {"ACCESS_TOKEN_FILE": "tokens.toml"}
    stack = LocalStack(tmp_path, tmp_path, Ports.free(shard_count=1), settings=given)
    asking = {n for n in stack.service_names() if "ACCESS_TOKEN_FILE" in stack.command(n)[1]}

    assert {"orchestrator", "index-0"} <= asking
    assert not asking & {"encoder", "rerank-0"}


@pytest.mark.xdist_group("system")
def test_a_repository_that_cannot_be_loaded_stops_the_start(tmp_path: Path) -> None:
    """The error carries the end of Triton's log, and nothing is left running."""
    repository = tmp_path / "repository"
    (repository / "broken").mkdir(parents=True)
    (repository / "broken" / "config.pbtxt").write_text('name: "broken" backend: "pytorch"')
    stack = LocalStack(tmp_path / "data", repository, Ports.free(shard_count=1))

    with pytest.raises((TritonUnavailable, TandemError), match="failed to load model"):
        stack.start()

    assert stack.dead_service() is None
    shutil.rmtree(tmp_path / "data")


@pytest.mark.xdist_group("system")
def test_a_service_that_cannot_work_ends_the_start_by_its_own_words(
    lone_instances: Path, tmp_path: Path
) -> None:
    """While Triton still loads; lines of earlier runs in its log are not repeated."""
    setting = {"ORCHESTRATOR_MINIMUM_COVERAGE": "7"}
    stack = LocalStack(tmp_path, lone_instances, Ports.free(shard_count=1), settings=setting)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "orchestrator.log").write_text("of an earlier run\n")

    with pytest.raises(StackFailed, match="MINIMUM_COVERAGE must be a share") as failed:
        stack.start()

    assert "earlier run" not in str(failed.value)
    assert stack.triton is None


class Crashing(LocalStack):
    """Runs one index, and a Triton that crashes so many times as soon as it serves."""

    crash_count = 0

    def service_names(self) -> list[str]:
        return ["index-0"]

    def start_triton(self) -> None:
        super().start_triton()
        if self.crash_count and self.triton:
            self.crash_count -= 1
            os.kill(self.triton.pid, signal.SIGSEGV)
            while self.triton.is_running():
                time.sleep(0.01)


@pytest.fixture(name="crashing")
def _crashing(tmp_path: Path) -> Iterator[Crashing]:
    repository = write_echo(tmp_path / "models")
    stack = Crashing(tmp_path / "data", repository, Ports.free(shard_count=1))
    with stack:
        yield stack


def test_a_start_survives_one_crash_of_triton(crashing: Crashing) -> None:
    """Triton 2.51 crashes on busy machines; services that wait for it stay as they are."""
    shown: list[str] = []
    crashing.crash_count = 1

    crashing.start(show=shown.append)

    assert crashing.triton is not None
    assert crashing.triton.is_running()
    assert crashing.dead_service() is None
    assert shown[-1] == "Triton ended by SIGSEGV; it is started again"


# The test above sees a crash and the restart; this one sees what is said of a second one.
@pytest.mark.slow
def test_a_start_in_which_triton_crashes_twice_says_so(crashing: Crashing) -> None:
    """At once, instead of a service that is not serving after 90 seconds; nothing is left."""
    crashing.crash_count = 2

    with pytest.raises(StackFailed, match=r"^Triton ended by SIGSEGV\n(.*\n)+.*start Tandem again"):
        crashing.start()

    assert crashing.triton is None
    assert crashing.dead_service() is None
