"""/v1/indexes: lists indexes, and describes one."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from gateway_svc.http_call import HttpCall, query_parameters
from gateway_svc.methods import search_method
from gateway_svc.openapi.schemas import Schemas, json_answer, parameter
from gateway_svc.rest.json_endpoint import JsonEndpoint, answer_json
from gateway_svc.rest.url_parameters import (
    FULL_COVERAGE,
    PAGE_PARAMETERS,
    page_of,
    query_flag,
)
from gateway_svc.upstream import Upstream
from tandem.v1 import search_service_pb2 as pb


class ListIndexes(JsonEndpoint):
    """Lists the indexes that the caller may search: GET /v1/indexes."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(search_method("ListIndexes"), upstream, "list_indexes")

    async def serve(self, call: HttpCall) -> Response:
        """Returns one page of indexes with their items."""
        query = query_parameters(call, "page_size", "page_token", "full_coverage_required")
        request = pb.ListIndexesRequest(
            full_coverage_required=query_flag(query, "full_coverage_required"), **page_of(query)
        )
        answer = await self.upstream.answer(self.method, request.SerializeToString(), call.context)
        return answer_json(pb.ListIndexesResponse.FromString(answer))

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes a page."""
        return {
            "parameters": [*PAGE_PARAMETERS, FULL_COVERAGE],
            "responses": {"200": json_answer(schemas.of(pb.ListIndexesResponse))},
        }


class GetIndex(JsonEndpoint):
    """Returns the state of an index and its live recall: GET /v1/indexes/{index_id}."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(search_method("DescribeIndex"), upstream, "get_index")

    async def serve(self, call: HttpCall) -> Response:
        """Returns the state on the shards that answer; raises IndexNotFound."""
        query = query_parameters(call, "full_coverage_required")
        request = pb.DescribeIndexRequest(
            index_id=call.request.path_params["index_id"],
            full_coverage_required=query_flag(query, "full_coverage_required"),
        )
        answer = await self.upstream.answer(self.method, request.SerializeToString(), call.context)
        return answer_json(pb.DescribeIndexResponse.FromString(answer))

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the state."""
        index_id = parameter("index_id", "path", {"type": "string", "minLength": 1}, "the index")
        return {
            "parameters": [index_id, FULL_COVERAGE],
            "responses": {"200": json_answer(schemas.of(pb.DescribeIndexResponse))},
        }
