"""GET /v1/models and one of them, in OpenAI's shape, which programs ask for before all else."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpCall, query_parameters
from gateway_svc.methods import model_method
from gateway_svc.openapi.schemas import Schema, Schemas, json_answer, parameter
from gateway_svc.rest.json_endpoint import JsonEndpoint
from gateway_svc.upstream import Upstream
from tandem.v1 import model_service_pb2 as pb

_MODEL: Schema = {
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "required": ["id", "object", "created", "owned_by"],
}


class ListModels(JsonEndpoint):
    """Lists the one model that is served, by its fingerprint, as embeddings name it."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(model_method("DescribeModel"), upstream, "list_models")

    async def serve(self, call: HttpCall) -> Response:
        """Returns the list."""
        return JSONResponse({"object": "list", "data": [await _served_model(self, call)]})

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the list."""
        answer: Schema = {
            "type": "object",
            "properties": {"data": {"type": "array", "items": _MODEL}},
            "required": ["object", "data"],
        }
        return {"responses": {"200": json_answer(answer)}}


class GetModel(JsonEndpoint):
    """Returns the model that is served, by the id that the list has."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(model_method("DescribeModel"), upstream, "get_model")

    async def serve(self, call: HttpCall) -> Response:
        """Returns the model; raises HttpRefusal for another id."""
        model = await _served_model(self, call)
        if call.request.path_params["model_id"] != model["id"]:
            raise HttpRefusal(
                HTTPStatus.NOT_FOUND, f"no such model; the one that is served is {model['id']}"
            )
        return JSONResponse(model)

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the model."""
        model_id = parameter("model_id", "path", {"type": "string", "minLength": 1}, "the model")
        return {"parameters": [model_id], "responses": {"200": json_answer(_MODEL)}}


async def _served_model(endpoint: JsonEndpoint, call: HttpCall) -> dict[str, Any]:
    query_parameters(call)
    request = pb.DescribeModelRequest().SerializeToString()
    answer = await endpoint.upstream.answer(endpoint.method, request, call.context)
    model = pb.DescribeModelResponse.FromString(answer).model
    # OpenAI's clients require a date of creation, and none is recorded.
    return {"id": model.fingerprint, "object": "model", "created": 0, "owned_by": "tandem"}
