"""GET /v1/models, in OpenAI's shape: programs ask it before they send anything else."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from gateway_svc.http_call import HttpCall, query_parameters
from gateway_svc.methods import model_method
from gateway_svc.openapi.schemas import Schema, Schemas, json_answer
from gateway_svc.rest.json_endpoint import JsonEndpoint
from gateway_svc.upstream import Upstream
from tandem.v1 import model_service_pb2 as pb


class ListModels(JsonEndpoint):
    """Lists the one model that is served, by its fingerprint, as embeddings name it."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(model_method("DescribeModel"), upstream, "list_models")

    async def serve(self, call: HttpCall) -> Response:
        """Returns the list."""
        query_parameters(call)
        request = pb.DescribeModelRequest().SerializeToString()
        answer = await self.upstream.answer(self.method, request, call.context)
        model = pb.DescribeModelResponse.FromString(answer).model
        # OpenAI's clients require a date of creation, and none is recorded.
        shown = {"id": model.fingerprint, "object": "model", "created": 0, "owned_by": "tandem"}
        return JSONResponse({"object": "list", "data": [shown]})

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the list."""
        model: Schema = {
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id", "object", "created", "owned_by"],
        }
        answer: Schema = {
            "type": "object",
            "properties": {"data": {"type": "array", "items": model}},
            "required": ["object", "data"],
        }
        return {"responses": {"200": json_answer(answer)}}
