"""GET /v1/models and one of them, in OpenAI's shape, which programs ask for before all else."""

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpCall, operation
from gateway_svc.openapi import TEXT, Schema, parameter
from gateway_svc.upstream import method_named
from tandem.v1 import model_service_pb2 as pb

_MODEL: Schema = {
    "type": "object",
    "properties": {"id": TEXT},
    "required": ["id", "object", "created", "owned_by"],
}
_MODELS: Schema = {
    "type": "object",
    "properties": {"data": {"type": "array", "items": _MODEL}},
    "required": ["object", "data"],
}
_MODEL_ID = parameter("model_id", "path", TEXT | {"minLength": 1}, "the model")


@operation(method_named("DescribeModel"), answer=_MODELS)
async def list_models(call: HttpCall) -> Response:
    """Lists the one model that is served, by its fingerprint, as embeddings name it."""
    return JSONResponse({"object": "list", "data": [await _served_model(call)]})


@operation(
    method_named("DescribeModel"),
    parameters=[_MODEL_ID],
    answer=_MODEL,
)
async def get_model(call: HttpCall) -> Response:
    """Returns the model that is served, by the id that the list has."""
    model = await _served_model(call)
    if call.request.path_params["model_id"] != model["id"]:
        raise HttpRefusal(
            HTTPStatus.NOT_FOUND, f"no such model; the one that is served is {model['id']}"
        )
    return JSONResponse(model)


async def _served_model(call: HttpCall) -> dict[str, Any]:
    call.query()
    answer = await call.answer(pb.DescribeModelRequest())
    model = pb.DescribeModelResponse.FromString(answer).model
    # OpenAI's clients require a date of creation, and none is recorded.
    return {"id": model.fingerprint, "object": "model", "created": 0, "owned_by": "tandem"}
