"""Turns arrays into Triton's messages and back: the part of tritonclient that each inference uses.

tritonclient builds each tensor twice and looks each name up by itself, for a third of the CPU that
a call takes.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

_Input = service_pb2.ModelInferRequest.InferInputTensor
_Output = service_pb2.ModelInferRequest.InferRequestedOutputTensor


def infer_request(
    model: str,
    version: int | None,
    inputs: Mapping[str, NDArray[np.generic]],
    outputs: Sequence[str],
) -> Any:  # noqa: ANN401 (Triton's message)
    """Returns the request for these outputs; without a version, the server chooses one."""
    return service_pb2.ModelInferRequest(
        model_name=model,
        model_version="" if version is None else str(version),
        inputs=[
            _Input(name=name, datatype=_datatype(values.dtype), shape=values.shape)
            for name, values in inputs.items()
        ],
        outputs=[_Output(name=name) for name in outputs],
        raw_input_contents=[values.tobytes() for values in inputs.values()],
    )


def output_array(response: Any, name: str) -> NDArray[Any] | None:  # noqa: ANN401 (Triton's message)
    """Returns an output, None if it is missing; raises ValueError if it does not fill its shape."""
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
        if output.name == name:
            array: NDArray[Any] = np.frombuffer(raw, dtype=triton_to_np_dtype(output.datatype))
            return array.reshape(tuple(output.shape))
    return None


@cache
def _datatype(dtype: np.dtype[Any]) -> str:
    name: str = np_to_triton_dtype(dtype)
    return name
