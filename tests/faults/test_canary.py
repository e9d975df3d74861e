"""Tests readiness: a Triton that claims to be ready but is not makes both services NOT_SERVING.

Both services notice by canaries; `make test-faults` runs 20 rounds.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem.errors import TandemError
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    Manifest,
    config_file,
    model_file,
)
from tandem.stack import triton_watch
from tandem.stack.stack import LocalStack, Ports
from tandem.stack.triton_watch import FAILED_CANARY_COUNT, TritonWatch
from tandem.triton.client import TritonClient
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.faults.run_counts import is_full, run_count
from tests.support.faults.summary import report
from tests.support.triton.tiny_triton import with_lone_instances

pytestmark = [pytest.mark.xdist_group("canary"), pytest.mark.timeout(600)]

# The quick run shares the machine with other tests, which may take most of it.
DETECTION_SECONDS = 5.0 if is_full() else 30.0
RECOVERY_SECONDS = 10.0 if is_full() else 60.0
WATCHED = ("encoder", "rerank-0")
STUB = "triton_python_backend_stub"
# Token ids that no canary sends: the model then answers no rows, or NaN, until it reads the cure.
EMPTYING, MADDENING, CURE = 150, 151, 152
# A batch with this one takes longer than a canary waits.
SLOWING, SLOW_SECONDS = 153, 3.0


# Answers nonsense once it has read a poison, until it reads the cure. Each instance would import
# torch, which this does not need. By DLPack, because Triton 2.51 sends NumPy 2 as empty tensors.
SICKLY = f"""
import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        outputs = json.loads(args["model_config"])["output"]
        dims = {{each["name"]: each["dims"] for each in outputs}}
        self.embedding_dim = int(dims["OUTPUT__0"][0])
        self.poison = 0

    def execute(self, requests):
        self.is_slow = False
        answers = [self.answer(request) for request in requests]
        if self.is_slow:
            time.sleep({SLOW_SECONDS})
        return answers

    def answer(self, request):
        ids = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "INPUT__0"))
        read = ids[({EMPTYING} <= ids) & (ids <= {CURE})]
        if read.size:
            self.poison = int(read.max())
        self.is_slow |= bool((ids == {SLOWING}).any())
        rows = 0 if self.poison == {EMPTYING} else len(ids)
        value = float("nan") if self.poison == {MADDENING} else self.embedding_dim ** -0.5
        embedding = np.full((len(ids), self.embedding_dim), value, dtype=np.float32)
        logit = np.full((len(ids), 1), value if np.isnan(value) else 0.0, dtype=np.float32)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor.from_dlpack("OUTPUT__0", embedding[:rows]),
                pb_utils.Tensor.from_dlpack("OUTPUT__1", logit[:rows]),
            ]
        )
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path) -> Path:
    """Copies the small model to a folder, with a joint encoder that can be poisoned.

    Tests harm an instance of the joint encoder alone.
    """
    folder = tmp_path_factory.mktemp("canary") / "model_repository"
    with_lone_instances(tiny_repository, folder, IMAGE_BACKBONE)
    model_file(folder, JOINT_ENCODER).with_name("model.py").write_text(SICKLY)
    config = config_file(folder, JOINT_ENCODER)
    text = config.read_text(encoding="utf-8")
    assert text.count('backend: "pytorch"') == 1
    config.write_text(text.replace('backend: "pytorch"', 'backend: "python"'), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalStack]:
    """Runs Triton and the services that call it, without an orchestrator."""
    with LocalStack(tmp_path_factory.mktemp("canary"), repository, Ports.free(1)) as running:
        (running._data_folder / "logs").mkdir()
        running.start_triton()
        for name in ("encoder", "index-0", "rerank-0"):
            running.start_service(name)
            running.wait_until_serving(name, time.monotonic() + 120)
        yield running


async def test_batches_slower_than_a_canary_are_load_and_no_fault(
    stack: LocalStack, tiny_manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a large model ingests: the services stay ready, and Triton is not restarted.

    In one of six tries: a stub that gets no CPU for a second is not ready for Triton itself.
    """
    monkeypatch.setattr(triton_watch, "LATE_CANARY_COUNT", 2)
    client = TritonClient(f"127.0.0.1:{stack.ports.triton}")
    model = ServedModel(client, tiny_manifest)
    ids = np.array([2, SLOWING, 3], dtype=np.int32)

    async def encode_slowly() -> None:
        for _ in range(2):
            await model.embed_texts([ids], 60.0)

    def looks() -> list[str | None]:
        with TritonWatch(stack, tiny_manifest) as watch:
            return [watch.look() for _ in range(3)]

    async def check(factor: float) -> None:
        seconds_until(stack, serving=True, limit_seconds=RECOVERY_SECONDS)
        loads = [asyncio.create_task(encode_slowly()) for _ in range(6)]
        looking = asyncio.create_task(asyncio.to_thread(looks))
        statuses = []
        while not all(load.done() for load in loads):
            statuses += [await asyncio.to_thread(is_serving, stack, name) for name in WATCHED]
            await asyncio.sleep(0.1)
        outcomes = await asyncio.gather(*loads, looking, return_exceptions=True)

        assert outcomes == [*[None] * 6, [None] * 3]
        assert len(statuses) > 20
        assert all(statuses)

    await holds_with_longer_times(check, factors=(1,) * 6)
    await client.close()


@pytest.mark.slow
def test_a_hung_triton_makes_the_services_unready_until_it_is_restarted(
    stack: LocalStack, tiny_manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells no counters either. The positive control of the test above."""
    monkeypatch.setattr(triton_watch, "LATE_CANARY_COUNT", 2)
    seconds_until(stack, serving=True, limit_seconds=RECOVERY_SECONDS)
    assert stack.triton is not None
    with TritonWatch(stack, tiny_manifest) as watch:
        assert watch.look() is None
        os.kill(stack.triton.pid, signal.SIGSTOP)
        seconds_until(stack, serving=False, limit_seconds=DETECTION_SECONDS)

        assert [watch.look() is None for _ in range(2)] == [True, False]

    seconds_until(stack, serving=True, limit_seconds=RECOVERY_SECONDS)


def is_serving(stack: LocalStack, name: str) -> bool:
    with grpc.insecure_channel(stack.address_of(name)) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=60
        )
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def seconds_until(stack: LocalStack, *, serving: bool, limit_seconds: float) -> float:
    """Returns the time until both services report the status; fails past the limit."""
    start_time = time.monotonic()
    while late := [name for name in WATCHED if is_serving(stack, name) is not serving]:
        assert time.monotonic() - start_time < limit_seconds, f"not {serving=} in time: {late}"
        time.sleep(0.05)
    return time.monotonic() - start_time


def stubs(stack: LocalStack) -> list[int]:
    """Returns the processes that run the joint encoder: its two instances."""
    assert stack.triton is not None
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == stack.triton.pid and STUB.encode() in command:
            found.append((command, int(path.parent.name)))
    return [pid for command, pid in sorted(found) if JOINT_ENCODER.encode() in command]


def stays_out(stack: LocalStack, seconds: float) -> bool:
    """Returns whether no service reports SERVING for that long."""
    end_time = time.monotonic() + seconds
    while time.monotonic() < end_time:
        if any(is_serving(stack, name) for name in WATCHED):
            return False
        time.sleep(0.05)
    return True


# The services' side is the same for nonsense, below; Triton's, and that a watch notices, is in
# tests/triton/test_server.py.
@pytest.mark.slow
def test_a_dead_stub_makes_the_services_unready_until_a_restart(
    stack: LocalStack, tiny_manifest: Manifest
) -> None:
    """One of two random instances is killed: out within 5 s, and back within 10 s.

    Triton is restarted as in `tandem up`: after three failed canaries, and not before.
    """
    random_ = random.Random(7)
    start_time = time.monotonic()
    detections, recoveries = [], []
    with TritonWatch(stack, tiny_manifest) as watch:
        for _ in range(run_count(1, 20)):
            seconds_until(stack, serving=True, limit_seconds=RECOVERY_SECONDS)
            assert watch.look() is None
            candidates = stubs(stack)
            assert len(candidates) == 2
            time.sleep(random_.random())  # at any point of the canaries' second
            os.kill(random_.choice(candidates), signal.SIGKILL)
            detections.append(seconds_until(stack, serving=False, limit_seconds=DETECTION_SECONDS))
            assert stays_out(stack, 2.5)
            looks = [watch.look() for _ in range(FAILED_CANARY_COUNT - 1)]
            assert looks == [None] * (FAILED_CANARY_COUNT - 1)
            assert watch.look() is not None
            recoveries.append(seconds_until(stack, serving=True, limit_seconds=RECOVERY_SECONDS))
    _report("dead stub", start_time, detections, recoveries)


async def test_a_model_that_answers_nonsense_makes_the_services_unready(
    stack: LocalStack, tiny_manifest: Manifest
) -> None:
    """The status is OK, but rows are missing or NaN: out within 5 s, and back within 10 s."""
    seconds_until(stack, serving=True, limit_seconds=RECOVERY_SECONDS)
    start_time = time.monotonic()
    detections, recoveries = [], []
    for _ in range(run_count(1, 20)):
        for poison in (EMPTYING, MADDENING):
            with pytest.raises(TandemError, match="OUTPUT__0"):
                await feed(stack, tiny_manifest, poison)
            detections.append(seconds_until(stack, serving=False, limit_seconds=DETECTION_SECONDS))
            recoveries.append(await seconds_until_cured(stack, tiny_manifest))
    _report("empty and NaN outputs", start_time, detections, recoveries)


def _report(test: str, start_time: float, detections: list[float], recoveries: list[float]) -> None:
    report(
        f"canary: {test}",
        start_time,
        rounds=len(detections),
        slowest_detection_seconds=round(max(detections), 2),
        slowest_recovery_seconds=round(max(recoveries), 2),
    )


async def seconds_until_cured(stack: LocalStack, manifest: Manifest) -> float:
    """Feeds both instances the cure until the services are back; fails past the limit."""
    start_time = time.monotonic()
    while not all(is_serving(stack, name) for name in WATCHED):
        assert time.monotonic() - start_time < RECOVERY_SECONDS, "not back in time"
        await asyncio.gather(*(feed(stack, manifest, CURE) for _ in range(4)))
    return time.monotonic() - start_time


async def feed(stack: LocalStack, manifest: Manifest, token_id: int) -> None:
    """Makes one instance read the token."""
    client = TritonClient(f"127.0.0.1:{stack.ports.triton}")
    ids = np.array([2, token_id, 3], dtype=np.int32)
    try:
        await ServedModel(client, manifest).embed_texts([ids], 5.0)
    finally:
        await client.close()
