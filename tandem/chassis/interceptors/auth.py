"""Authenticates callers and checks what they may call."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from tandem.chassis.access.callers import bind_asking_caller, current_caller
from tandem.chassis.access.guard import Guard
from tandem.chassis.access.headers import AUTHORIZATION_KEY, current_headers, fault_of_headers
from tandem.chassis.interceptors.handlers import AroundInterceptor, Passed, nothing
from tandem.chassis.interceptors.peer import certificate_names, peer_host
from tandem.chassis.interceptors.probe_calls import ProbeCalls
from tandem.chassis.telemetry.log import get_logger
from tandem.contract.methods import AccessRule
from tandem.errors import Unauthenticated

log = get_logger()

# Fields of requests whose elements a quota of calls counts.
_COUNTED = ("searches", "contents", "documents", "items", "item_ids", "patches")


class AuthInterceptor(AroundInterceptor):
    """Requires valid headers, an accepted certificate name, and a token with the method's scope.

    The checks use metadata only; no message of a refused caller is read.
    """

    def __init__(self, guard: Guard, probes: ProbeCalls) -> None:
        self._guard = guard
        self._probes = probes

    @contextmanager
    def around(
        self, path: str, sent: object, context: grpc.aio.ServicerContext
    ) -> Iterator[Passed]:
        """Serves an authorised caller, with the caller set; raises for any other."""
        if (fault := fault_of_headers()) is not None:
            raise fault
        if not self._guard.is_open:
            access = self._guard.access_of(path)
            _check_name(self._guard.peer_names, context)
            self._guard.let_in(access, current_headers().get(AUTHORIZATION_KEY, ""))
            if current_caller() is not None:
                self._probes.note_known(context)
        is_internal = self._guard.access.get(path) is AccessRule.INTERNAL
        bind_asking_caller(peer_host(context), is_internal=is_internal)
        yield sent, nothing


class MessageAuthInterceptor(AroundInterceptor):
    """Checks each message's index and quota; runs inside AuthInterceptor.

    A stream's caller is checked again with each of its messages and answers: its token may have
    been removed, or have fewer rights than when the stream began.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def wrap(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns `handler`, which gets only messages that its caller may send."""
        is_internal = self._guard.access.get(path) is AccessRule.INTERNAL
        return handler if self._guard.tokens is None or is_internal else super().wrap(path, handler)

    @contextmanager
    def around(
        self, path: str, sent: Message | AsyncIterator[Message], context: grpc.aio.ServicerContext
    ) -> Iterator[Passed]:
        """Checks a message now, and those of a stream as they come."""
        if isinstance(sent, Message):
            self._check(sent, path)
            yield sent, partial(self._let_in_again, path, tuple(_index_ids(sent)))
        else:
            yield self._each_checked(sent, path), partial(self._let_in_again, path)

    async def _each_checked(
        self, messages: AsyncIterator[Message], path: str
    ) -> AsyncIterator[Any]:
        async for message in messages:
            self._let_in_again(path)
            self._check(message, path, may_owe=True)
            yield message

    def _let_in_again(self, path: str, index_ids: Iterable[str] = ()) -> None:
        authorization = current_headers().get(AUTHORIZATION_KEY, "")
        self._guard.let_in(self._guard.access_of(path), authorization)
        if (caller := current_caller()) is not None:
            for index_id in index_ids:
                caller.check_index(index_id)

    def _check(self, message: Message, path: str, *, may_owe: bool = False) -> None:
        caller = current_caller()
        if caller is None:
            raise Unauthenticated(why="it has no token")
        index_ids = set(_index_ids(message))
        if self._guard.access.get(path) is AccessRule.ADMIN:
            log.info("audit", caller=caller.grant.name, method=path, index_ids=sorted(index_ids))
            index_ids = index_ids or {"*"}  # one that names no index is of the whole shard
        for index_id in index_ids:
            caller.check_index(index_id)
        caller.take_requests(_call_count(message), may_owe=may_owe)


def _call_count(message: Any) -> int:  # noqa: ANN401
    """Returns how many calls a message counts as: one for each that could be a call of its own."""
    fields = message.DESCRIPTOR.fields_by_name
    return max(1, sum(len(getattr(message, name)) for name in _COUNTED if name in fields))


def _check_name(names: frozenset[str], context: grpc.aio.ServicerContext) -> None:
    if not names:
        return
    if names.isdisjoint(certificate_names(context)):
        raise Unauthenticated(why="the name in its certificate is not accepted")


def _index_ids(message: Any) -> Iterator[str]:  # noqa: ANN401
    """Yields the index ids in a message and in its searches."""
    fields = message.DESCRIPTOR.fields_by_name
    # Without one, a message speaks of no index, or is refused for it.
    if "index_id" in fields and message.index_id:
        yield message.index_id
    if "search" in fields:
        yield from _index_ids(message.search)
    if "searches" in fields:
        for search in message.searches:
            yield from _index_ids(search)
