"""Lets in whom the service's guard knows, and to no more than they may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import grpc

from tandem.access import Access
from tandem.chassis.guard import Guard, bind_caller
from tandem.chassis.interceptors.handlers import HandlerInterceptor, behavior, with_behavior
from tandem.chassis.log import get_logger
from tandem.chassis.tokens import Caller, Scope
from tandem.errors import PermissionDenied, Unauthenticated

log = get_logger()

_BEARER = "bearer "
_NAME_KEYS = ("x509_subject_alternative_name", "x509_common_name")


class AuthInterceptor(HandlerInterceptor):
    """Asks for a known certificate name, and for a token with scope, index and quota."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler`, entered only by those who may."""
        if self._guard.is_open:
            return handler
        inner = behavior(handler)

        async def answer(message: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
            return await inner(self._admitted(path, message, context), context)

        async def stream(
            message: Any,  # noqa: ANN401
            context: grpc.aio.ServicerContext,
        ) -> AsyncIterator[Any]:
            answers = inner(self._admitted(path, message, context), context)
            async with aclosing(answers):
                async for each in answers:
                    yield each

        return with_behavior(handler, stream if handler.response_streaming else answer)

    def _admitted(self, path: str, message: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: ANN401
        """Returns the message, or stream of messages, with each checked; raises who may not."""
        check = self._check_of(path, context)
        if hasattr(message, "__aiter__"):
            return _checked(message, check)
        check(message)
        return message

    def _check_of(self, path: str, context: grpc.aio.ServicerContext) -> Callable[[Any], None]:
        """Returns what to ask of each message; raises where the caller may not send any."""
        access = self._guard.access.get(path)
        if access is None:
            raise PermissionDenied(caller="anybody", what=f"call {path}")
        _check_name(self._guard.peer_names, context)
        if access is Access.INTERNAL or self._guard.tokens is None:
            return _ask_nothing
        caller = self._guard.tokens.caller_of(_token(context))
        if caller is None:
            raise Unauthenticated(why="its token is not known")
        caller.check_scope(Scope(access.value))
        bind_caller(caller)

        def check(message: Any) -> None:  # noqa: ANN401
            index_ids = list(_index_ids(message))
            if access is Access.ADMIN:
                log.info("audit", caller=caller.grant.name, method=path, index_ids=index_ids)
            _check_message(caller, index_ids)

        return check


def _ask_nothing(_message: Any) -> None:  # noqa: ANN401
    pass


def _check_message(caller: Caller, index_ids: list[str]) -> None:
    for index_id in index_ids:
        caller.check_index(index_id)
    caller.take_request()


async def _checked(
    messages: AsyncIterator[Any], check: Callable[[Any], None]
) -> AsyncIterator[Any]:
    async for message in messages:
        check(message)
        yield message


def _check_name(names: frozenset[str], context: grpc.aio.ServicerContext) -> None:
    if not names:
        return
    shown = context.auth_context()
    found = {name.decode(errors="replace") for key in _NAME_KEYS for name in shown.get(key, ())}
    if names.isdisjoint(found):
        raise Unauthenticated(why="its certificate has a name that is not let in")


def _token(context: grpc.aio.ServicerContext) -> str:
    value = dict(context.invocation_metadata() or ()).get("authorization", "")
    if not isinstance(value, str) or not value.lower().startswith(_BEARER):
        raise Unauthenticated(why="it brings no token")
    return value[len(_BEARER) :].strip()


def _index_ids(message: Any) -> Iterator[str]:  # noqa: ANN401
    """Yields the indexes that a message speaks of, at its top or in the searches in it."""
    fields = message.DESCRIPTOR.fields_by_name
    if "index_id" in fields:
        yield message.index_id
    if "search" in fields:
        yield from _index_ids(message.search)
    if "searches" in fields:
        for search in message.searches:
            yield from _index_ids(search)
