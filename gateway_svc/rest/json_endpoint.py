"""The base of endpoints that read a JSON object."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.datastructures import Headers
from starlette.responses import Response

from gateway_svc.faults import HttpRefusal
from gateway_svc.http_call import HttpCall, HttpEndpoint, query_parameters
from gateway_svc.json_message import by_size, message_from_json, message_to_json, read_json
from gateway_svc.malformed import malformed
from gateway_svc.methods import Method
from gateway_svc.upstream import Upstream

AnyMessage = TypeVar("AnyMessage", bound=Message)

JSON_TYPE = "application/json"


class JsonEndpoint(HttpEndpoint):
    """Reads a JSON object, calls the orchestrator, and answers JSON in the protos' names."""

    def __init__(self, method: Method, upstream: Upstream, name: str) -> None:
        super().__init__(method, name)
        self.upstream = upstream

    async def members(self, call: HttpCall) -> dict[str, Any]:
        """Returns the body's members; raises HttpRefusal, RequestMalformed or MessageTooLarge."""
        query_parameters(call)
        check_json(call.request.headers)
        value = await read_json(call.body, self.method.limit)
        if not isinstance(value, dict):
            raise malformed("the body is not a JSON object")
        return value

    async def message(
        self, call: HttpCall, members: dict[str, Any], message_class: type[AnyMessage]
    ) -> AnyMessage:
        """Returns the message of the members; raises RequestMalformed."""
        return await message_from_json(members, message_class, byte_count=len(call.body))


def check_json(headers: Headers) -> None:
    """Raises HttpRefusal for another content type.

    A page of another origin can send some types without asking, but not this one.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise HttpRefusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the content type is not {JSON_TYPE}; send that",
            {"accept-post": JSON_TYPE},
        )


def flag(members: dict[str, Any], name: str) -> bool:
    """Takes out and returns a member that is true or false, by default false.

    Raises RequestMalformed.
    """
    value = members.pop(name, None)
    if value is not None and not isinstance(value, bool):
        raise malformed(f"{name} is neither true nor false", "send one of them")
    return value is True


async def json_of(answer: bytes, message_class: type[Message]) -> Response:
    """Returns the response with every field of an answer; a large one is written in a thread."""
    return await by_size(len(answer), lambda: answer_json(message_class.FromString(answer)))


def answer_json(message: Message) -> Response:
    """Returns the response with every field of a message."""
    return Response(message_to_json(message, is_canonical=False), media_type=JSON_TYPE)
