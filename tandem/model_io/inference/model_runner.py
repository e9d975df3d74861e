"""Defines what runs a model's inferences: Triton, or a process that has the model itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.contract.inference_cost import InferenceCost
from tandem.errors import ModelOutputInvalid
from tandem.model_io.repository.priority import Priority
from tandem.stages.finite import are_finite

TokenIds = NDArray[np.int32]
ImageTokenArray = NDArray[np.float16]
Values = TypeVar("Values")


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Describes an expected output: name, dtype, and dimensions after the batch."""

    name: str
    dtype: type
    dims: tuple[int, ...]


# eq=False: arrays compare element by element, so `==` on the whole would raise.
@dataclass(frozen=True, slots=True, eq=False)
class ModelAnswer:
    """Holds the requested outputs of one inference, and its times."""

    arrays: Sequence[NDArray[Any]]
    compute_seconds: float | None = None
    """Compute time of its whole batch; None if Triton does not report it."""
    queue_seconds: float | None = None
    """The rest, from sending to response; None if Triton does not report it."""


@dataclass(frozen=True, slots=True, eq=False)
class Inferred(Generic[Values]):
    """Holds the model's outputs, one row per row of the call, and their cost."""

    values: Values
    cost: InferenceCost


class ModelRunner(Protocol):
    """Runs inferences of a model repository's models, as `TritonClient` does."""

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[OutputSpec],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
        version: int | None = None,
    ) -> ModelAnswer:
        """Returns the outputs, each [B, *dims]; `TritonClient` says what it raises."""

    def is_proven(self, model: str) -> bool:
        """Returns whether the responses of the last second make a canary unnecessary."""

    async def check_working(self, model: str) -> None:
        """Raises unless a late answer of `model` is load; `TritonClient` says what."""

    def check_processes(self) -> None:
        """Raises ModelUnavailable if a model's process was recently found dead."""


def check_output(
    model: str, spec: OutputSpec, array: NDArray[Any] | None, batch: int
) -> NDArray[Any]:
    """Returns an output; raises ModelOutputInvalid if it is not [B, *dims], or is not finite."""
    # Triton has answered OK without data (numpy 2 in its Python backend), so every part of
    # a response is checked.
    expected = (batch, *spec.dims)
    if array is None or array.shape != expected or array.dtype != spec.dtype:
        got = "nothing" if array is None else f"{array.dtype} {list(array.shape)}"
        raise ModelOutputInvalid(
            model=model,
            why=f"{spec.name} is {got}, expected {spec.dtype.__name__} {list(expected)}",
        )
    if not are_finite(array):
        raise ModelOutputInvalid(model=model, why=f"{spec.name} has NaN or infinity in it")
    return array
