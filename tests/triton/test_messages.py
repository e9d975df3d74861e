"""tandem.triton.messages: the messages are those that tritonclient makes and reads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.grpc import InferResult, service_pb2

from tandem.triton.messages import infer_request, output_array


def response(*outputs: tuple[str, str, list[int], bytes]) -> service_pb2.ModelInferResponse:
    """Returns a response with outputs of name, type, shape and bytes."""
    made = service_pb2.ModelInferResponse(model_name="m", model_version="3")
    for name, datatype, shape, raw in outputs:
        made.outputs.add(name=name, datatype=datatype, shape=shape)
        made.raw_output_contents.append(raw)
    return made


def test_a_request_has_each_tensor_in_rows_and_columns() -> None:
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    inputs: dict[str, NDArray[np.generic]] = {
        "INPUT__0": np.asfortranarray(values),
        "INPUT__1": np.ones((2, 1), dtype=np.int64),
    }
    request = infer_request("joint_encoder", 3, inputs, ["OUTPUT__1", "COMPUTE_SECONDS"])

    assert (request.model_name, request.model_version) == ("joint_encoder", "3")
    assert [(each.name, each.datatype, list(each.shape)) for each in request.inputs] == [
        ("INPUT__0", "FP16", [2, 3]),
        ("INPUT__1", "INT64", [2, 1]),
    ]
    assert list(request.raw_input_contents) == [values.tobytes(), inputs["INPUT__1"].tobytes()]
    assert [each.name for each in request.outputs] == ["OUTPUT__1", "COMPUTE_SECONDS"]
    assert infer_request("joint_encoder", None, inputs, []).model_version == ""


def test_an_output_is_what_tritonclient_reads() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = response(
        ("OUTPUT__1", "INT64", [2], np.array([7, 8]).tobytes()),
        ("OUTPUT__0", "FP32", [2, 3], values.tobytes()),
    )
    read = output_array(made, "OUTPUT__0")

    assert read is not None
    np.testing.assert_array_equal(read, values)
    np.testing.assert_array_equal(read, InferResult(made).as_numpy("OUTPUT__0"))
    assert read.dtype == np.float32


def test_an_output_without_its_bytes_is_not_passed_on() -> None:
    """Triton has answered so without an error, with NumPy 2 in its Python backend."""
    empty = response(("OUTPUT__0", "FP32", [2, 3], b""))
    with pytest.raises(ValueError, match="reshape"):
        output_array(empty, "OUTPUT__0")
    short = response(("OUTPUT__0", "FP32", [2, 3], bytes(8)))
    with pytest.raises(ValueError, match="reshape"):
        output_array(short, "OUTPUT__0")
    missing = response(("OUTPUT__0", "FP32", [2, 3], bytes(24)))
    assert output_array(missing, "OUTPUT__1") is None
    del missing.raw_output_contents[:]
    assert output_array(missing, "OUTPUT__0") is None
