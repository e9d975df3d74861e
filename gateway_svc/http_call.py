"""Defines an operation of the HTTP API, and one call of it.

An operation is a function below its method of the contract and its description; `app` has the
paths:

    @operation(method_named("ListIndexes"), answer=reference(...))
    async def list_indexes(call: HttpCall) -> Response:
        return await call.answered(pb.ListIndexesRequest())
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from gateway_svc.faults import HttpRefusal, malformed, problem
from gateway_svc.json_message import by_size, message_from_json, message_to_json, read_json
from gateway_svc.openapi import Schema, json_answer, json_body, problem_answer
from gateway_svc.upstream import CallContext, Method, Upstream
from tandem.errors import TandemError

AnyMessage = TypeVar("AnyMessage", bound=Message)

JSON_TYPE = "application/json"

# base64 makes four bytes of three, and JSON has names and signs around them.
_JSON_GROWTH = 4 / 3
_JSON_ROOM_BYTES = 64 * 1024

# nginx, for one, would hold the first of two answers back until the second is there.
_UNBUFFERED = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}


@dataclass(slots=True)
class Outcome:
    """How a call ended, for the log and the metrics."""

    code: str = "OK"
    reason: str = ""

    def fail(self, error: TandemError | HttpRefusal) -> None:
        """Notes an error."""
        if isinstance(error, TandemError):
            self.code, self.reason = error.status, error.reason
        else:
            self.code = "INVALID_ARGUMENT"


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One admitted call, with its whole body."""

    request: Request
    body: bytes
    context: CallContext
    outcome: Outcome
    operation: "Operation"
    upstream: Upstream

    def query(self) -> dict[str, str]:
        """Returns the parameters of the URL's query.

        Raises RequestMalformed for one that is unknown, which may be a misspelt one, or given
        twice.
        """
        names, given = self.operation.query_names, self.request.query_params.multi_items()
        for name, _ in given:
            if name not in names:
                raise malformed(
                    f"the URL has no parameter {name[:64]!a}",
                    f"send {' or '.join(names)} there" if names else "send none",
                )
        if len({name for name, _ in given}) < len(given):
            raise malformed("the URL has a parameter twice", "send each once")
        return dict(given)

    async def members(self, batch: str = "") -> dict[str, Any]:
        """Returns the members of a JSON object, as read_json; raises HttpRefusal or TandemError.

        A page of another origin can send some content types without asking, but not JSON's.
        """
        self.query()
        if content_type(self.request.headers) != JSON_TYPE:
            raise HttpRefusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the content type is not {JSON_TYPE}; send that",
                {"accept-post": JSON_TYPE},
            )
        value = await read_json(self.body, self.operation.method.limit, batch)
        if not isinstance(value, dict):
            raise malformed("the body is not a JSON object")
        return value

    async def message(self, members: dict[str, Any], message_class: type[AnyMessage]) -> AnyMessage:
        """Returns the message of the members; raises RequestMalformed."""
        return await message_from_json(members, message_class, byte_count=len(self.body))

    async def answer(self, request: Message) -> bytes:
        """Returns the orchestrator's answer; raises TandemError."""
        sent = await by_size(len(self.body), request.SerializeToString)
        return await self.upstream.answer(self.operation.method, sent, self.context)

    async def answered(self, request: Message) -> Response:
        """Returns the response with every field of the orchestrator's answer."""
        answer = await self.answer(request)
        kind = self.operation.method.answer_class
        return await by_size(len(answer), lambda: answer_json(kind.FromString(answer)))

    def streamed(
        self,
        method: Method,
        requests: Iterable[bytes],
        piece: Callable[[bytes], Awaitable[bytes]],
        end: Callable[[TandemError | None], bytes],
        kind: str,
    ) -> Response:
        """Returns the response with a piece of each answer and the end of all of them.

        No proxy is to keep, cache or compress it. `end` gets the error that ended the answers.
        """

        async def pieces() -> AsyncIterator[bytes]:
            failure: TandemError | None = None
            try:
                async with aclosing(self.upstream.answers(method, requests, self.context)) as found:
                    async for each in found:
                        yield await piece(each)
            except TandemError as error:
                self.outcome.fail(failure := error)
            yield end(failure)

        return StreamingResponse(pieces(), headers=_UNBUFFERED, media_type=kind)


Serve = Callable[[HttpCall], Awaitable[Response]]
"""Returns the response; raises TandemError or HttpRefusal."""


Refuse = Callable[[TandemError | HttpRefusal, Request], Response]
"""Returns the response for an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Calls one method of the contract."""

    method: Method
    name: str
    """Labels its metrics."""
    description: Schema
    """What OpenAPI says of it."""
    serve: Serve
    refuse: Refuse
    max_body_bytes: Callable[[Method, Headers], int]
    query_names: tuple[str, ...] = ()


def operation(
    method: Method,
    *,
    answer: Schema,
    body: Schema | None = None,
    parameters: Sequence[Schema] = (),
    refuse: Refuse = lambda error, _: problem(error),
) -> Callable[[Serve], Operation]:
    """Makes an operation of a function.

    Its name is the function's, and its summary the first line of its docstring.
    """

    def made(serve: Serve) -> Operation:
        name: str = serve.__name__
        description = describe((serve.__doc__ or "").split("\n")[0])
        description["responses"]["200"] = answer if "content" in answer else json_answer(answer)
        if body is not None:
            description["requestBody"] = json_body(body)
        if parameters:
            description["parameters"] = list(parameters)
        return Operation(
            method=method,
            name=name,
            description=description,
            serve=serve,
            refuse=refuse,
            max_body_bytes=json_size,
            query_names=tuple(each["name"] for each in parameters if each["in"] == "query"),
        )

    return made


def describe(summary: str) -> Schema:
    """Returns what OpenAPI says of every operation."""
    return {
        "summary": summary,
        "responses": {"default": problem_answer("A refusal or a fault")},
    }


def json_size(method: Method, _: Headers) -> int:
    """Returns the limit of a body: a request's, and what JSON makes of it."""
    return int(method.limit.max_bytes * _JSON_GROWTH) + _JSON_ROOM_BYTES


def flag(members: dict[str, Any], name: str, *, default: bool = False) -> bool:
    """Takes out and returns a member that is true or false; raises RequestMalformed."""
    value = members.pop(name, None)
    if value is not None and not isinstance(value, bool):
        raise malformed(f"{name} is neither true nor false", "send one of them")
    return default if value is None else value


def content_type(headers: Headers) -> str:
    """Returns the content type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def answer_json(message: Message) -> Response:
    """Returns the response with every field of a message."""
    return Response(message_to_json(message, is_canonical=False), media_type=JSON_TYPE)
