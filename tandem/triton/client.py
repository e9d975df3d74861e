"""Calls Triton over one connection, with deadlines, and checks every response."""

import asyncio
import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.chassis.calls.channels import open_channel
from tandem.chassis.tls import Identity
from tandem.errors import (
    DeadlineExceeded,
    ModelOutputInvalid,
    ModelUnavailable,
    Overloaded,
)
from tandem.model_io.inference.model_runner import ModelAnswer, OutputSpec, check_output
from tandem.model_io.repository.config_pbtxt import COMPUTE_SECONDS
from tandem.model_io.repository.priority import Priority
from tandem.triton.fault import (
    DEAD_PROCESS,
    TritonFault,
    error_of_fault,
    triton_fault,
)
from tandem.triton.messages import infer_request, output_array
from tandem.triton.metrics import note_failure, note_inference

# Reconnects within a second of Triton's return; gRPC's default is up to two minutes.
_CHANNEL_ARGUMENTS = [
    # Alternates between the servers that a name resolves to.
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Triton runs close to its services: the machine's HTTP proxy must not be used.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]

# How long a model counts as dead after a dead process, unless the server went away meanwhile.
_DEAD_SECONDS = 10.0
# So many responses within this time, without a failure since, prove as much as a canary: all of the
# model's instances answer. A canary's own responses do not count, or it would suppress itself.
_PROOF_COUNT = 3
_PROOF_SECONDS = 1.0
# A model whose counters stand still for longer answers no request: one waits at most that long in
# Triton's queue (config_pbtxt.py).
_STALLED_SECONDS = 30.0
_STATISTICS_SECONDS = 1.0
# How long a model that was late for load has no canaries: they go before the batches that they wait
# for, and took half of a slow model's time.
_LOADED_SECONDS = 10.0
# The first Triton that a cancelled call cannot crash (its pull requests 7840 and 8078): in older
# ones, a call that is cancelled while being answered kills the process.
_CANCELLABLE_SINCE = (2, 58)
# There, an abandoned call is left to end by itself: limits of time and number.
_LEFT_SECONDS = 5.0
_LEFT_COUNT = 64
_CLOSE_SECONDS = 1.0


class TritonClient:
    """Runs inferences. Each process has one, created in the event loop."""

    def __init__(
        self,
        address: str,
        *,
        identity: Identity | None = None,
        headers: Callable[[], dict[str, str] | None] = lambda: None,
    ) -> None:
        """`address` is host:port of Triton's gRPC endpoint; connects with the first call.

        Without an `identity` the connection is plain text. `headers` is called for each inference.
        """
        self._channel = open_channel(address, identity, _CHANNEL_ARGUMENTS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._headers = headers
        self._timed_models: dict[str, bool] = {}
        self._is_cancellable: bool | None = None
        self._left: deque[asyncio.Task[Any]] = deque()
        self._dead_times: dict[str, float] = {}
        self._answer_times: dict[str, deque[float]] = {}
        self._execution_counts: dict[str, int] = {}
        self._worked_times: dict[str, float] = {}
        self._loaded_times: dict[str, float] = {}

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[OutputSpec],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
        version: int | None = None,
    ) -> ModelAnswer:
        """Returns the outputs, each [B, *dims], in the requested order.

        They are of the given version of the model; without one, the server chooses.
        Raises ModelUnavailable, Overloaded or DeadlineExceeded if Triton does not answer,
        InternalFault if it rejects the inputs' shapes or dtypes, and ModelOutputInvalid if it
        answers with a wrong shape, a wrong dtype, or NaN.
        """
        try:
            answer = await self._infer(model, inputs, outputs, timeout_seconds, priority, version)
        except BaseException as error:
            self._answer_times.pop(model, None)
            if not isinstance(error, DeadlineExceeded | Overloaded | asyncio.CancelledError):
                self._loaded_times.pop(model, None)
            raise
        self._worked_times[model] = time.monotonic()
        if priority is Priority.CANARY:
            return answer
        times = self._answer_times.setdefault(model, deque(maxlen=_PROOF_COUNT))
        times.append(time.monotonic())
        return answer

    async def _infer(
        self,
        model: str,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[OutputSpec],
        timeout_seconds: float,
        priority: Priority,
        version: int | None,
    ) -> ModelAnswer:
        batch = len(next(iter(inputs.values())))
        start_time = time.perf_counter()
        try:
            output_names = [spec.name for spec in outputs]
            if await self._is_timed(model, timeout_seconds):
                output_names.append(COMPUTE_SECONDS)
            timeout_seconds -= time.perf_counter() - start_time
            is_cancelled = await self._cancels(timeout_seconds)
            request = infer_request(model, version, inputs, output_names)
            request.parameters["priority"].uint64_param = priority.level
            # At most half of it in Triton's queue: work that starts later would be wasted.
            request.parameters["timeout"].int64_param = max(1, int(timeout_seconds * 0.5e6))
            call = self._stub.ModelInfer(
                request,
                timeout=timeout_seconds + (0.0 if is_cancelled else _LEFT_SECONDS),
                metadata=self._metadata(),
            )
            response = await (call if is_cancelled else self._or_leave(call, timeout_seconds))
            seconds = time.perf_counter() - start_time
            arrays = _arrays(model, response, outputs, batch)
        except grpc.aio.AioRpcError as error:
            fault = triton_fault(error)
            named = error_of_fault(fault, error, model)
            self._note(fault, model)
            note_failure(model, named)
            raise named from error
        except TimeoutError as error:
            late = DeadlineExceeded(what=f"the inference of {model}")
            note_failure(model, late)
            raise late from error
        except ModelOutputInvalid as error:
            note_failure(model, error)
            raise
        computed = output_array(response, COMPUTE_SECONDS)
        compute_seconds = None if computed is None else float(computed[0, 0])
        note_inference(model, response.model_version, priority, batch, seconds, compute_seconds)
        if compute_seconds is None:
            return ModelAnswer(arrays)
        return ModelAnswer(arrays, compute_seconds, max(0.0, seconds - compute_seconds))

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple((self._headers() or {}).items())

    async def _is_timed(self, model: str, timeout_seconds: float) -> bool:
        """Returns whether the server reports compute times; asks once for each model."""
        if model not in self._timed_models:
            metadata = await _unless_restricted(
                self._stub.ModelMetadata(
                    service_pb2.ModelMetadataRequest(name=model),
                    timeout=timeout_seconds,
                    metadata=self._metadata(),
                )
            )
            names = [output.name for output in metadata.outputs] if metadata else []
            self._timed_models[model] = COMPUTE_SECONDS in names
        return self._timed_models[model]

    async def _cancels(self, timeout_seconds: float) -> bool:
        """Returns whether to cancel abandoned calls in Triton, so that it runs none that waits.

        Asks for the server's version once (decision 29).
        """
        if self._is_cancellable is None:
            metadata = await _unless_restricted(
                self._stub.ServerMetadata(
                    service_pb2.ServerMetadataRequest(),
                    timeout=timeout_seconds,
                    metadata=self._metadata(),
                )
            )
            # An unknown version may be any.
            version = _version(metadata.version) if metadata else (0, 0)
            self._is_cancellable = version >= _CANCELLABLE_SINCE
        return self._is_cancellable

    async def _or_leave(self, call: Awaitable[Any], timeout_seconds: float) -> Any:  # noqa: ANN401 (a message)
        """Returns the response; raises TimeoutError. The call continues if its caller gives up.

        Triton drops it from its queue at the timeout that was sent along, or runs it needlessly.
        """
        # grpc.aio reads the call in a task of its own; another task around it costs CPU.
        own = getattr(call, "_invocation_task", None)
        task: asyncio.Task[Any] = asyncio.ensure_future(call) if own is None else own
        try:
            async with asyncio.timeout(timeout_seconds):
                response = await asyncio.shield(task)
            return response if own is None else await call
        finally:
            if not task.done():
                self._leave(task)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._left.append(task)
        task.add_done_callback(self._forget)
        if (
            len(self._left) > _LEFT_COUNT
        ):  # Triton hangs: there is no response during which it could crash
            self._left[0].cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._left.remove(task)
        if not task.cancelled():
            task.exception()  # or asyncio warns that the exception was never retrieved

    def is_proven(self, model: str) -> bool:
        """Returns whether a canary is unnecessary now.

        That is after enough responses within the last second, or as it was late for load.
        """
        if time.monotonic() - self._loaded_times.get(model, -math.inf) < _LOADED_SECONDS:
            return True
        times = self._answer_times.get(model)
        if times is None or len(times) < _PROOF_COUNT:
            return False
        return time.monotonic() - times[0] < _PROOF_SECONDS

    async def check_working(self, model: str) -> None:
        """Returns if a late answer of `model` is load: it has finished inferences recently.

        Triton's own counters show it, which count every caller's. Raises ModelUnavailable if they
        have stood still for 30 s, and DeadlineExceeded if Triton does not tell them, or they were
        never seen to move.
        """
        late = DeadlineExceeded(what=f"the inference of {model}")
        try:
            statistics = await self._stub.ModelStatistics(
                service_pb2.ModelStatisticsRequest(name=model),
                timeout=_STATISTICS_SECONDS,
                metadata=self._metadata(),
            )
        except grpc.aio.AioRpcError as error:
            raise late from error
        count = sum(each.execution_count for each in statistics.model_stats)
        if self._execution_counts.setdefault(model, count) != count:
            self._execution_counts[model] = count
            self._worked_times[model] = time.monotonic()
        if model not in self._worked_times:
            raise late
        if time.monotonic() - self._worked_times[model] > _STALLED_SECONDS:
            raise ModelUnavailable(
                model=model, why=f"it has finished no inference for {_STALLED_SECONDS:.0f} s"
            )
        self._loaded_times[model] = time.monotonic()

    def check_processes(self) -> None:
        """Raises ModelUnavailable if a model's process was recently found dead.

        The other instance still answers, and Triton alternates: half of the requests would fail.
        """
        for model, dead_time in self._dead_times.items():
            if time.monotonic() - dead_time < _DEAD_SECONDS:
                raise ModelUnavailable(model=model, why=DEAD_PROCESS)

    def _note(self, fault: TritonFault, model: str) -> None:
        if fault in (TritonFault.QUEUE_FULL, TritonFault.TIMEOUT):
            return
        # The next call may reach another server, with another config.
        self._timed_models.pop(model, None)
        self._is_cancellable = None
        match fault:
            case TritonFault.PROCESS_DEAD:
                self._dead_times[model] = time.monotonic()
            case TritonFault.LEAVING | TritonFault.UNREACHABLE:
                # There is no server, so the next call reaches another one.
                self._dead_times.clear()

    async def close(self) -> None:
        """Closes the connection, after abandoned calls if they end soon."""
        if self._left:
            await asyncio.wait(self._left, timeout=_CLOSE_SECONDS)
        await self._channel.close()


async def _unless_restricted(asking: Awaitable[Any]) -> Any:  # noqa: ANN401 (Triton's)
    """Returns the metadata; None if the server withholds them, which may still infer."""
    try:
        return await asking
    except grpc.aio.AioRpcError as error:
        if triton_fault(error) is not TritonFault.RESTRICTED:
            raise
        return None


def _version(text: str) -> tuple[int, int]:
    """Returns the first two numbers; zeros for an unknown form."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _arrays(
    model: str,
    response: Any,  # noqa: ANN401 (Triton's message)
    outputs: Sequence[OutputSpec],
    batch: int,
) -> list[NDArray[Any]]:
    """Returns the outputs; raises ModelOutputInvalid."""
    arrays: list[NDArray[Any]] = []
    for spec in outputs:
        try:
            array = output_array(response, spec.name)
        except ValueError as error:  # fewer bytes than the shape needs
            raise ModelOutputInvalid(model=model, why=str(error)) from error
        arrays.append(check_output(model, spec, array, batch))
    return arrays
