"""Every way in which Triton fails or answers wrongly has its own error."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    ModelOutputInvalid,
    ModelUnavailable,
    Overloaded,
    TandemError,
)
from tandem.model_io.inference.model_runner import OutputSpec
from tandem.model_io.repository.priority import Priority
from tandem.stack.free_ports import free_ports
from tandem.triton import client as client_module
from tandem.triton.client import TritonClient
from tandem.triton.metrics import note_inference
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.triton.metrics import Counts, counted, wait_for_queue
from tests.support.triton.odd_models import (
    DOUBLE,
    HEADLESS,
    MOODY,
    MOODY_QUEUE_SIZE,
    NAN,
    PLAIN,
    SLOW,
)
from tests.support.triton.tiny_triton import Serving

pytestmark = pytest.mark.xdist_group("odd-models")

OUTPUT = OutputSpec("OUTPUT__0", np.float32, (3,))
TIMEOUT_SECONDS = 10.0
# A tenth of a core makes ten seconds of a slow call's one.
PATIENT_SECONDS = 200.0


def rows(mood: float, count: int = 2) -> NDArray[np.float32]:
    """Returns [count, 3]; the model does what the mood says."""
    return np.full((count, 3), mood, dtype=np.float32)


async def moody(
    client: TritonClient,
    values: NDArray[np.generic],
    *,
    name: str = "x",
    output: OutputSpec = OUTPUT,
    timeout_seconds: float = TIMEOUT_SECONDS,
    priority: Priority = Priority.INGEST,
) -> NDArray[np.generic]:
    """Returns what the model makes of the values; never hangs."""
    async with asyncio.timeout(PATIENT_SECONDS + 10):
        answer = await client.infer(MOODY, {name: values}, [output], timeout_seconds, priority)
    [array] = answer.arrays
    return array


async def test_an_answer_is_what_the_model_says(triton_client: TritonClient) -> None:
    """Values come back in rows and columns, whichever way they lie in memory."""
    values = np.array([[0, 1, 2], [3, 4, 5]], dtype=np.float32)

    answers = await asyncio.gather(
        moody(triton_client, values), moody(triton_client, np.asfortranarray(values))
    )

    assert [answer.tolist() for answer in answers] == [[[1, 2, 3], [4, 5, 6]]] * 2


@pytest.mark.parametrize(
    ("mood", "why"),
    [(NAN, "NaN or infinity"), (HEADLESS, r"\[1, 3\], expected"), (DOUBLE, "float64")],
)
async def test_a_wrong_answer_is_not_passed_on(
    triton_client: TritonClient, mood: float, why: str
) -> None:
    with pytest.raises(ModelOutputInvalid, match=why) as caught:
        await moody(triton_client, rows(mood))
    assert caught.value.metadata == {"model": MOODY}


@pytest.mark.parametrize(
    ("values", "name", "output"),
    [
        (np.zeros((2, 4), dtype=np.float32), "x", "OUTPUT__0"),
        (np.zeros((2, 3), dtype=np.float32), "x", "OUTPUT__1"),
    ],
    ids=["width", "output"],
)
async def test_a_request_that_the_model_does_not_take(
    triton_client: TritonClient, values: NDArray[np.generic], name: str, output: str
) -> None:
    with pytest.raises(InternalFault, match=f"model {MOODY} refuses its inputs"):
        await moody(triton_client, values, name=name, output=OutputSpec(output, np.float32, (3,)))


async def test_an_unknown_model_is_unavailable(triton_client: TritonClient) -> None:
    with pytest.raises(ModelUnavailable, match="model nowhere") as caught:
        await triton_client.infer("nowhere", {"x": rows(PLAIN)}, [OUTPUT], TIMEOUT_SECONDS)
    assert caught.value.metadata == {"model": "nowhere"}


async def test_a_model_that_fails_says_why(triton_client: TritonClient) -> None:
    with pytest.raises(ModelUnavailable, match="no negative numbers") as caught:
        await moody(triton_client, rows(-1))
    assert "\n" not in caught.value.message
    assert "/" not in caught.value.message


@pytest.mark.parametrize("timeout_seconds", [0.02, -1.0])
async def test_a_deadline_is_kept(triton_client: TritonClient, timeout_seconds: float) -> None:
    start_time = time.monotonic()

    with pytest.raises(DeadlineExceeded):
        await moody(triton_client, rows(PLAIN), timeout_seconds=timeout_seconds)

    assert time.monotonic() - start_time < TIMEOUT_SECONDS


async def while_slow(
    serving: Serving,
    client: TritonClient,
    slow_count: int,
    waiting_count: int,
    body: Callable[[list[asyncio.Task[NDArray[np.generic]]]], Awaitable[None]],
) -> None:
    """Runs the body on so many calls that wait in Triton's queue behind slow ones, each a batch.

    Triton says how many wait: all but one, which it runs or takes next. Fails if the slow ones have
    ended before the body has.
    """
    running = asyncio.gather(
        *(moody(client, rows(SLOW, 8), timeout_seconds=PATIENT_SECONDS) for _ in range(slow_count)),
        return_exceptions=True,
    )

    async def queued(count: int) -> None:
        await asyncio.to_thread(
            wait_for_queue, serving.metrics_url, MOODY, count, lambda: not running.done()
        )

    await queued(slow_count - 1)  # calls may arrive in another order
    waiting = [
        asyncio.create_task(moody(client, rows(PLAIN, 8), timeout_seconds=PATIENT_SECONDS))
        for _ in range(waiting_count)
    ]
    try:
        await queued(slow_count - 1 + waiting_count)
        await body(waiting)
        assert not running.done(), "the slow calls ended too soon"
    finally:
        await running
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_full_queue_is_overload_and_a_long_one_a_missed_deadline(
    shared_triton: Serving, triton_client: TritonClient
) -> None:
    async def outcome(timeout_seconds: float) -> type[TandemError] | None:
        try:
            await moody(triton_client, rows(PLAIN, 8), timeout_seconds=timeout_seconds)
        except TandemError as error:
            return type(error)
        return None

    async def check(factor: float) -> None:
        patient: list[asyncio.Task[type[TandemError] | None]] = []

        async def ask(waiting: object) -> None:
            assert await outcome(0.2) is DeadlineExceeded
            patient.extend(
                asyncio.create_task(outcome(PATIENT_SECONDS)) for _ in range(2 * MOODY_QUEUE_SIZE)
            )
            # Whatever the queue has no place for is refused while the slow calls run.
            await asyncio.wait(patient, return_when=asyncio.FIRST_COMPLETED)

        try:
            await while_slow(shared_triton, triton_client, round(2 * factor), 0, ask)
        finally:
            outcomes = await asyncio.gather(*patient)
        assert set(outcomes) == {Overloaded, None}

    await holds_with_longer_times(check, factors=(1, 1.5, 1.5))
    # Triton clears its queue of those that were given up when it next looks.
    for _ in range(50):
        if await outcome(PATIENT_SECONDS) is None:
            return
        await asyncio.sleep(0.1)
    pytest.fail("the queue stays full")


@pytest.mark.parametrize("is_cancelling", [True, None])
async def test_cancelled_calls_are_not_run(
    shared_triton: Serving, is_cancelling: bool | None
) -> None:
    """Those that wait in Triton's queue go out of it: what runs grows by what was running alone.

    A client that finds out by itself whether this server bears it finds that it does not: there
    they run, and their caller is let go all the same.
    """
    client = TritonClient(shared_triton.address)
    client._is_cancellable = is_cancelling
    await moody(client, rows(PLAIN))  # by which it has found out

    async def check(factor: float) -> None:
        slow_count = 1 + round(factor)
        waiting_count = MOODY_QUEUE_SIZE - slow_count
        before = Counts.at_rest(shared_triton.metrics_url, MOODY)
        given_up: list[asyncio.Task[NDArray[np.generic]]] = []

        async def cancel(waiting: list[asyncio.Task[NDArray[np.generic]]]) -> None:
            given_up.extend(call for call in waiting if call.cancel())
            await asyncio.gather(*waiting, return_exceptions=True)
            assert all(call.cancelled() for call in given_up)
            assert len(given_up) > 1

        await while_slow(shared_triton, client, slow_count, waiting_count, cancel)

        if is_cancelling:
            after = Counts.at_rest(shared_triton.metrics_url, MOODY).since(before)
            # Triton may have taken one more batch out of the queue, to be run next.
            run_count = slow_count + waiting_count - len(given_up)
            assert 8 * run_count <= after.inferences <= 8 * run_count + 8
        else:
            all_count = 8 * (slow_count + waiting_count)
            found = counted(shared_triton.metrics_url, MOODY, before, all_count)
            assert found.inferences == all_count

    await holds_with_longer_times(check, factors=(1, 2, 2))
    # Positive control: without the cancelling, all of them run.
    before = Counts.at_rest(shared_triton.metrics_url, MOODY)
    await asyncio.gather(*(moody(client, rows(PLAIN, 8)) for _ in range(3)))
    assert counted(shared_triton.metrics_url, MOODY, before, 24).inferences == 24
    await client.close()


class OtherTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Says which version it is, and answers no inference: no newer one is available here.

    It stands for its version alone.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self.began, self.cancelled = asyncio.Event(), asyncio.Event()

    async def ServerMetadata(
        self, request: object, context: grpc.aio.ServicerContext
    ) -> service_pb2.ServerMetadataResponse:
        return service_pb2.ServerMetadataResponse(name="triton", version=self.version)

    async def ModelMetadata(
        self, request: object, context: grpc.aio.ServicerContext
    ) -> service_pb2.ModelMetadataResponse:
        return service_pb2.ModelMetadataResponse(name=MOODY)

    async def ModelInfer(
        self, request: object, context: grpc.aio.ServicerContext
    ) -> service_pb2.ModelInferResponse:
        self.began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return service_pb2.ModelInferResponse()


@asynccontextmanager
async def serving_as(triton: OtherTriton) -> AsyncIterator[TritonClient]:
    """Yields a client of that server, on loopback."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = TritonClient(f"127.0.0.1:{port}")
    try:
        yield client
    finally:
        await server.stop(None)
        await client.close()


@pytest.mark.parametrize(
    ("version", "is_told"),
    [
        # The version before the first that gets them, that first one, and one that sorts elsewhere
        # as text.
        ("2.57.0", False),
        ("2.58.0", True),
        ("2.100.0", True),
        ("a fork of ours", False),
    ],
)
async def test_the_servers_version_decides_whether_it_gets_cancelled_calls(
    version: str, is_told: bool
) -> None:
    """And of those that are late, which are cancelled at their deadline."""

    async def check(factor: float) -> None:
        triton = OtherTriton(version)
        async with serving_as(triton) as client:
            for is_late in (False, True):
                triton.began.clear()
                triton.cancelled.clear()
                call = asyncio.create_task(
                    moody(client, rows(PLAIN), timeout_seconds=1.0 * factor if is_late else 60.0)
                )
                await asyncio.wait_for(triton.began.wait(), 2.0 * factor if is_late else 60.0)
                if is_late:
                    with pytest.raises(DeadlineExceeded):
                        await call
                else:
                    call.cancel()
                await asyncio.sleep(0.3 * factor)

                assert call.done()
                assert triton.cancelled.is_set() == is_told

    await holds_with_longer_times(check)


async def test_an_answer_says_how_long_the_model_took(triton_client: TritonClient) -> None:
    async def timed(mood: float) -> tuple[float, float]:
        start_time = time.monotonic()
        values = rows(mood, 8)
        answer = await triton_client.infer(MOODY, {"x": values}, [OUTPUT], timeout_seconds=60)
        total_seconds = time.monotonic() - start_time
        assert answer.compute_seconds is not None
        assert answer.queue_seconds is not None
        assert answer.compute_seconds + answer.queue_seconds <= total_seconds
        return answer.compute_seconds, answer.queue_seconds

    one, other = await asyncio.gather(timed(SLOW), timed(SLOW))

    compute_seconds, queue_seconds = min(one[0], other[0]), max(one[1], other[1])
    assert compute_seconds > 0.05
    assert queue_seconds > 0.5 * compute_seconds


@pytest.fixture
async def unreachable() -> AsyncIterator[TritonClient]:
    """A client of a port without a listener."""
    client = TritonClient(f"127.0.0.1:{free_ports(1)[0]}")
    yield client
    await client.close()


async def test_without_triton_a_call_fails_at_once(unreachable: TritonClient) -> None:
    """It does not wait for its deadline: not at the first call, nor while gRPC backs off."""
    for _ in range(3):
        start_time = time.monotonic()
        with pytest.raises(ModelUnavailable) as caught:
            await moody(unreachable, rows(PLAIN), timeout_seconds=240.0)
        assert time.monotonic() - start_time < 60  # of the 240 that it may take
        assert caught.value.metadata == {"model": MOODY}


async def test_a_model_is_proven_by_three_answers_of_the_last_second(
    triton_client: TritonClient,
) -> None:
    """A wrong answer ends it at once, silence within a second. A canary's own prove nothing."""
    await asyncio.sleep(1)  # past what other tests have asked
    good = rows(PLAIN)
    proven = []
    start_time = time.monotonic()
    for _ in range(3):
        proven.append(triton_client.is_proven(MOODY))
        await moody(triton_client, good)
    assert proven == [False] * 3
    # On a busy machine three answers may take longer than the second in which they count.
    assert triton_client.is_proven(MOODY) or time.monotonic() - start_time >= 1
    await _prove(triton_client)

    with pytest.raises(ModelOutputInvalid):
        await moody(triton_client, rows(NAN))
    assert not triton_client.is_proven(MOODY)

    await _prove(triton_client)
    await asyncio.sleep(1)
    assert not triton_client.is_proven(MOODY)

    for _ in range(3):
        await moody(triton_client, good, priority=Priority.CANARY)
    assert not triton_client.is_proven(MOODY)


async def test_a_late_model_works_while_anyones_inferences_are_finished(
    shared_triton: Serving, triton_client: TritonClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Triton's counters, from when they were seen to move, until they stand still for long."""
    watching = TritonClient(shared_triton.address)
    for _ in range(2):
        with pytest.raises(DeadlineExceeded, match=MOODY):
            await watching.check_working(MOODY)

    await moody(triton_client, rows(PLAIN))
    while True:
        try:
            await watching.check_working(MOODY)
        except DeadlineExceeded:  # Triton counts an inference a moment after its answer.
            await asyncio.sleep(0.01)
        else:
            break
    await watching.check_working(MOODY)

    monkeypatch.setattr(client_module, "_STALLED_SECONDS", 0.0)
    with pytest.raises(ModelUnavailable, match="finished no inference"):
        await watching.check_working(MOODY)
    monkeypatch.undo()
    await watching.check_working(MOODY)
    await watching.close()


async def test_a_model_that_was_late_for_load_is_not_loaded_with_canaries(
    shared_triton: Serving,
) -> None:
    """For ten seconds, or until a call shows that it fails; a late call shows nothing new."""
    client = TritonClient(shared_triton.address)
    await moody(client, rows(PLAIN))
    assert not client.is_proven(MOODY)

    await client.check_working(MOODY)
    assert client.is_proven(MOODY)
    with pytest.raises(DeadlineExceeded):
        await moody(client, rows(SLOW), timeout_seconds=0.001)
    assert client.is_proven(MOODY)

    with pytest.raises(ModelOutputInvalid):
        await moody(client, rows(NAN))
    assert not client.is_proven(MOODY)
    await client.close()


async def test_a_server_that_tells_no_counters_is_late(unreachable: TritonClient) -> None:
    with pytest.raises(DeadlineExceeded, match=MOODY):
        await unreachable.check_working(MOODY)


async def _prove(client: TritonClient) -> None:
    """Asks until the answers of the last second prove the model."""
    for _ in range(100):
        await moody(client, rows(PLAIN))
        if client.is_proven(MOODY):
            return
    pytest.fail("a hundred answers did not prove the model")


async def test_requests_are_counted_by_model_version_and_purpose(
    triton_client: TritonClient,
) -> None:
    labels = {"model": MOODY, "version": "1", "purpose": "ingest"}
    failed = {"model": MOODY, "reason": ModelOutputInvalid.reason}

    def counts() -> tuple[float, float, float]:
        return (
            REGISTRY.get_sample_value("tandem_triton_request_duration_seconds_count", labels) or 0,
            REGISTRY.get_sample_value("tandem_triton_request_rows_sum", labels) or 0,
            REGISTRY.get_sample_value("tandem_triton_failures_total", failed) or 0,
        )

    before = counts()
    await moody(triton_client, rows(PLAIN, count=3))
    with pytest.raises(ModelOutputInvalid):
        await moody(triton_client, rows(NAN))

    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 3, 1]


def test_a_version_that_is_not_a_number_is_rejected() -> None:
    for version in ("1\nx 1", "latest", "", "123456"):
        note_inference(MOODY, version, Priority.CANARY, 1, 0.1, 0.05)
    labels = {"model": MOODY, "version": "other", "purpose": "canary"}
    assert REGISTRY.get_sample_value("tandem_triton_queue_duration_seconds_count", labels) == 4
