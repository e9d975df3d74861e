"""The way to Triton: one connection, every call with a deadline, every answer checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    ModelOutputInvalid,
    ModelUnavailable,
    Overloaded,
    TandemError,
)
from tandem.model_io.priority import Priority

# A reconnect within a second of Triton's return, not gRPC's default of up to two minutes.
_CHANNEL_ARGUMENTS = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What a model must answer: a name, a dtype, and the dimensions after the batch."""

    name: str
    dtype: type
    dims: tuple[int, ...]


# eq=False: arrays compare element by element, so `==` on the whole would raise.
@dataclass(frozen=True, slots=True, eq=False)
class TritonAnswer:
    """One request's outputs as asked for, and where its time went."""

    arrays: Sequence[NDArray[Any]]
    compute_seconds: float | None = None
    """In the model, for the whole batch it went with; None where Triton does not tell."""
    queue_seconds: float | None = None
    """The rest, from sending to answer; None where Triton does not tell."""


class TritonClient:
    """Runs inferences. One a process, made where the event loop runs."""

    def __init__(self, address: str) -> None:
        """`address` is host:port of Triton's gRPC endpoint; connects with the first call."""
        self._client = InferenceServerClient(address, channel_args=_CHANNEL_ARGUMENTS)

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[OutputSpec],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> TritonAnswer:
        """Returns the outputs, each [B, *dims], as asked for.

        Raises ModelUnavailable, Overloaded or DeadlineExceeded where Triton does not answer,
        InternalFault where it refuses the inputs' shapes or dtypes, and ModelOutputInvalid where it
        answers with a wrong shape, a wrong dtype, or NaN.
        """
        batch = len(next(iter(inputs.values())))
        try:
            result = await self._client.infer(
                model,
                [_input(name, values) for name, values in inputs.items()],
                outputs=[InferRequestedOutput(spec.name) for spec in outputs],
                priority=priority,
                # In Triton's queue no longer than half of it: work begun later would be in vain.
                timeout=max(1, int(timeout_seconds * 0.5e6)),
                client_timeout=timeout_seconds,
            )
            arrays = [result.as_numpy(spec.name) for spec in outputs]
        except InferenceServerException as error:
            raise _named(error, model) from error
        except ValueError as error:  # as_numpy, of fewer bytes than the shape says
            raise ModelOutputInvalid(model=model, why=str(error)) from error
        for spec, array in zip(outputs, arrays, strict=True):
            _check(model, spec, array, batch)
        return TritonAnswer(arrays)

    async def close(self) -> None:
        """Ends the connection."""
        await self._client.close()


def _input(name: str, values: NDArray[np.generic]) -> InferInput:
    tensor = InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
    tensor.set_data_from_numpy(np.ascontiguousarray(values))
    return tensor


def _check(model: str, spec: OutputSpec, array: NDArray[np.generic] | None, batch: int) -> None:
    # Triton has answered OK with no data at all (numpy 2 in its Python backend), so nothing of
    # an answer is taken on trust.
    expected = (batch, *spec.dims)
    if array is None or array.shape != expected or array.dtype != spec.dtype:
        got = "nothing" if array is None else f"{array.dtype} {list(array.shape)}"
        raise ModelOutputInvalid(
            model=model, why=f"{spec.name} is {got}, expected {spec.dtype} {list(expected)}"
        )
    if not np.isfinite(array).all():
        raise ModelOutputInvalid(model=model, why=f"{spec.name} has NaN or infinity in it")


def _named(error: InferenceServerException, model: str) -> TandemError:
    """Returns our error for Triton's, which are told apart by their texts."""
    status, message = str(error.status() or ""), str(error.message() or "")
    if "Exceeds maximum queue size" in message:
        return Overloaded(what=f"Triton's queue of {model}")
    if "DEADLINE_EXCEEDED" in status or "timeout expired" in message.lower():
        return DeadlineExceeded(what=f"the inference of {model}")
    if "INVALID_ARGUMENT" in status:  # the model's config and ours differ: no retry helps
        return InternalFault(why=f"model {model} refuses its inputs: {message}")
    return ModelUnavailable(model=model, why=message.split("\n", 1)[0] or status)
