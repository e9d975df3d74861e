"""Describes an index over plain HTTP."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from gateway_svc.http_call import HttpCall, query_parameters
from gateway_svc.malformed import malformed
from gateway_svc.methods import search_method
from gateway_svc.openapi.schemas import Schemas, json_answer, parameter
from gateway_svc.rest.items import checked_text
from gateway_svc.rest.json_endpoint import JsonEndpoint, answer_json
from gateway_svc.upstream import Upstream
from tandem.v1 import search_service_pb2 as pb

_FLAGS = {"": False, "false": False, "true": True}


class GetIndex(JsonEndpoint):
    """Returns the state of an index and its live recall: GET /v1/indexes/{index_id}."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(search_method("DescribeIndex"), upstream, "get_index")

    async def serve(self, call: HttpCall) -> Response:
        """Returns the state on the shards that answer; raises IndexNotFound."""
        flag = query_parameters(call, "full_coverage_required").get("full_coverage_required", "")
        if flag not in _FLAGS:
            raise malformed("full_coverage_required is neither true nor false", "send one of them")
        request = pb.DescribeIndexRequest(
            index_id=checked_text(call.request.path_params["index_id"], "index_id"),
            full_coverage_required=_FLAGS[flag],
        )
        answer = await self.upstream.answer(self.method, request.SerializeToString(), call.context)
        return answer_json(pb.DescribeIndexResponse.FromString(answer))

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the state."""
        flag = {"type": "string", "enum": ["true", "false"]}
        return {
            "parameters": [
                parameter("index_id", "path", {"type": "string", "minLength": 1}, "the index"),
                parameter(
                    "full_coverage_required", "query", flag, "fail if a shard does not answer"
                ),
            ],
            "responses": {"200": json_answer(schemas.of(pb.DescribeIndexResponse))},
        }
