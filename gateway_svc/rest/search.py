"""POST /v1/search: one search, answered at once or in two server-sent events."""

import json
import re
from functools import partial
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from gateway_svc.faults import malformed, problem_members
from gateway_svc.http_call import HttpCall, flag, operation
from gateway_svc.json_message import by_size, message_to_json
from gateway_svc.openapi import (
    CONTENT,
    TEXT,
    Schema,
    closed_object,
    fields,
    json_answer,
    reference,
)
from gateway_svc.rest.content_json import content_of
from gateway_svc.upstream import method_named
from tandem.errors import TandemError
from tandem.v1 import search_service_pb2 as pb

EVENTS_TYPE = "text/event-stream"

_NEVER = re.compile(r"q=0(\.0*)?")
_EVENT_NAMES = {pb.SEARCH_PHASE_RETRIEVED: "retrieved", pb.SEARCH_PHASE_FINAL: "final"}
_STREAM = method_named("StreamSearchItems")
_FIELDS = fields(pb.SearchItemsRequest)
_SEARCH: Schema = closed_object(
    {
        **_FIELDS,
        "query": {"anyOf": [CONTENT, _FIELDS["query"]]},
        "filter": {"anyOf": [TEXT, _FIELDS["filter"]]},
        "stream": {"type": "boolean"},
    }
)
_ANSWER: Schema = json_answer(reference(pb.SearchItemsResponse))
_ANSWER["content"][EVENTS_TYPE] = {"schema": TEXT}


@operation(method_named("SearchItems"), body=_SEARCH, answer=_ANSWER)
async def search(call: HttpCall) -> Response:
    """Searches. `query` may be a text, and `filter` too, in the form of `--where`.

    Returns the answer, or its events with `stream` or where they are what is accepted.
    """
    members = await call.members()
    is_stream = flag(members, "stream") or _accepts_events(call.request.headers)
    request = await _request(call, members)
    if not is_stream:
        return await call.answered(request)
    sent = pb.StreamSearchItemsRequest(search=request).SerializeToString()
    return call.streamed(_STREAM, [sent], _event_of, _last_event, EVENTS_TYPE)


async def _request(call: HttpCall, members: dict[str, Any]) -> pb.SearchItemsRequest:
    query = members.pop("query", None)
    if isinstance(members.get("filter"), str):
        if "filter_text" in members:
            raise malformed("filter and filter_text are both set", "send one of them")
        members["filter_text"] = members.pop("filter")
    request = await call.message(members, pb.SearchItemsRequest)
    if query is not None:
        content = await by_size(len(call.body), content_of, query, "query")
        request.query.CopyFrom(content)
    return request


async def _event_of(answer: bytes) -> bytes:
    message = pb.StreamSearchItemsResponse.FromString(answer)
    name = _EVENT_NAMES.get(message.phase, "answer")
    write = partial(message_to_json, message.answer, is_canonical=False)
    return _event(name, await by_size(len(answer), write))


def _last_event(error: TandemError | None) -> bytes:
    if error is None:
        return b""
    return _event("error", json.dumps(problem_members(error)).encode())


def _event(name: str, data: bytes) -> bytes:
    # JSON of one line, so the event has one line of data.
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _accepts_events(headers: Headers) -> bool:
    """Returns whether the caller accepts a stream of events, by name and not with `q=0`."""
    for accepted in headers.get("accept", "").lower().split(","):
        kind, *parameters = [each.strip() for each in accepted.split(";")]
        if kind == EVENTS_TYPE:
            return not any(_NEVER.fullmatch(each) for each in parameters)
    return False
