"""/v1/indexes: lists indexes, and describes one."""

from starlette.responses import Response

from gateway_svc.http_call import HttpCall, operation
from gateway_svc.openapi import TEXT, parameter, reference
from gateway_svc.rest.url_parameters import FULL_COVERAGE, PAGE_PARAMETERS, page_of, query_flag
from gateway_svc.upstream import method_named
from tandem.v1 import search_service_pb2 as pb

_INDEX_ID = parameter("index_id", "path", TEXT | {"minLength": 1}, "the index")


@operation(
    method_named("ListIndexes"),
    parameters=[*PAGE_PARAMETERS, FULL_COVERAGE],
    answer=reference(pb.ListIndexesResponse),
)
async def list_indexes(call: HttpCall) -> Response:
    """Lists the indexes that the caller may search."""
    query = call.query()
    is_full = query_flag(query, "full_coverage_required")
    return await call.answered(
        pb.ListIndexesRequest(full_coverage_required=is_full, **page_of(query))
    )


@operation(
    method_named("DescribeIndex"),
    parameters=[_INDEX_ID, FULL_COVERAGE],
    answer=reference(pb.DescribeIndexResponse),
)
async def get_index(call: HttpCall) -> Response:
    """Returns the state of an index and its live recall."""
    is_full = query_flag(call.query(), "full_coverage_required")
    index_id = call.request.path_params["index_id"]
    return await call.answered(
        pb.DescribeIndexRequest(index_id=index_id, full_coverage_required=is_full)
    )
