"""POST /v1/search: one search, answered at once or in two server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from gateway_svc.http_call import HttpCall, streamed
from gateway_svc.json_message import by_size, message_to_json
from gateway_svc.malformed import malformed
from gateway_svc.methods import search_method
from gateway_svc.openapi.schemas import Schemas, closed_object, json_answer, json_body
from gateway_svc.problem import problem_members
from gateway_svc.rest.content_json import content_of
from gateway_svc.rest.json_endpoint import JsonEndpoint, flag, json_of
from gateway_svc.upstream import Upstream
from tandem.errors import TandemError
from tandem.v1 import search_service_pb2 as pb

EVENTS_TYPE = "text/event-stream"

_NEVER = re.compile(r"q=0(\.0*)?")

_EVENT_NAMES = {pb.SEARCH_PHASE_RETRIEVED: "retrieved", pb.SEARCH_PHASE_FINAL: "final"}


class SearchEndpoint(JsonEndpoint):
    """Searches. `query` may be a text, and `filter` too, in the form of `--where`."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(search_method("SearchItems"), upstream, "search")
        self._stream_method = search_method("StreamSearchItems")

    async def serve(self, call: HttpCall) -> Response:
        """Returns the answer, or its events with `stream` or where they are what is accepted."""
        members = await self.members(call)
        is_stream = flag(members, "stream") or _accepts_events(call.request.headers)
        search = await self._search(call, members)
        if is_stream:
            request = pb.StreamSearchItemsRequest(search=search).SerializeToString()
            return streamed(self._events(call, request), EVENTS_TYPE)
        answer = await self.upstream.answer(self.method, search.SerializeToString(), call.context)
        return await json_of(answer, pb.SearchItemsResponse)

    def operation(self, schemas: Schemas) -> dict[str, Any]:
        """Describes the request and both forms of the answer."""
        members = schemas.members(pb.SearchItemsRequest)
        members["query"] = {"anyOf": [schemas.content(), members["query"]]}
        members["filter"] = {"anyOf": [{"type": "string"}, members["filter"]]}
        members["stream"] = {"type": "boolean"}
        answer = json_answer(schemas.of(pb.SearchItemsResponse))
        answer["content"][EVENTS_TYPE] = {"schema": {"type": "string"}}
        return {
            "requestBody": json_body(closed_object(members)),
            "responses": {"200": answer},
        }

    async def _search(self, call: HttpCall, members: dict[str, Any]) -> pb.SearchItemsRequest:
        """Returns the message of the members, of which a query and a filter may be texts."""
        query = members.pop("query", None)
        if isinstance(members.get("filter"), str):
            if "filter_text" in members:
                raise malformed("filter and filter_text are both set", "send one of them")
            members["filter_text"] = members.pop("filter")
        search = await self.message(call, members, pb.SearchItemsRequest)
        if query is not None:
            content = await by_size(len(call.body), content_of, query, "query")
            search.query.CopyFrom(content)
        return search

    async def _events(self, call: HttpCall, request: bytes) -> AsyncIterator[bytes]:
        try:
            answers = self.upstream.answers(self._stream_method, [request], call.context)
            async with aclosing(answers):
                async for answer in answers:
                    message = pb.StreamSearchItemsResponse.FromString(answer)
                    name = _EVENT_NAMES.get(message.phase, "answer")
                    write = partial(message_to_json, message.answer, is_canonical=False)
                    yield _event(name, await by_size(len(answer), write))
        except TandemError as error:
            call.outcome.fail(error)
            yield _event("error", json.dumps(problem_members(error)).encode())


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
