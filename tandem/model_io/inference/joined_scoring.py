"""Joins the pairs of one query that several shards of a process score at the same time.

A search's candidates are on all shards. If each shard had its own inference, that of the fullest
would be the search's time: 13 of 20 pairs, for example, while an instance of the model that scored
the other 7 is idle. Together they are divided evenly.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.errors import DeadlineExceeded, InternalFault, ModelOutputInvalid
from tandem.model_io.inference.model_runner import ImageTokenArray, Inferred, TokenIds

# The longest that read pairs wait for the other shards' reads, which take a fraction of it.
_WAIT_SECONDS = 0.001

Score = Callable[
    [Sequence[TokenIds], Sequence[ImageTokenArray], float],
    Coroutine[Any, Any, Inferred[NDArray[np.float32]]],
]
"""Scores each text i with image i, within the seconds."""


class JoinedScoring:
    """Joins the calls of one query. Rerankers of one process share it, in one event loop."""

    def __init__(self, wait_seconds: float = _WAIT_SECONDS) -> None:
        """Lets calls whose pairs are ready wait `wait_seconds` for those that are expected."""
        self._wait_seconds = wait_seconds
        self._groups: dict[bytes, _Group] = {}

    @contextmanager
    def expected(self, digest: bytes) -> "Iterator[JoinedCall]":
        """Yields a call; others of the same digest wait for its pairs, until the body ends.

        The digest names the query and the version of the model.
        """
        group = self._groups.get(digest)
        if group is None:
            group = self._groups[digest] = _Group(self, digest)
        group.expected_count += 1
        call = JoinedCall(group, self._wait_seconds)
        try:
            yield call
        finally:
            call.leave()

    def forget(self, group: "_Group") -> None:
        """Lets later calls begin another group."""
        if self._groups.get(group.digest) is group:
            del self._groups[group.digest]


class JoinedCall:
    """One call, which scores its pairs once, or leaves."""

    def __init__(self, group: "_Group", wait_seconds: float) -> None:
        self._group = group
        self._wait_seconds = wait_seconds
        self._is_expected = True

    def leave(self) -> None:
        """Tells the others not to wait; does nothing after `match_logits`."""
        if self._is_expected:
            self._is_expected = False
            self._group.expected_count -= 1
            self._group.send_if_complete()

    async def match_logits(
        self,
        score: Score,
        texts: Sequence[TokenIds],
        images: Sequence[ImageTokenArray],
        timeout_seconds: float,
    ) -> Inferred[NDArray[np.float32]]:
        """Returns what `score` returns for these pairs, with this call's share of the cost.

        If the caller gives up, the others' pairs are still scored. Where the model fails because of
        some pairs, each call scores its own, so that one shard's damage stays its own.
        """
        if not self._is_expected:  # again, after another call's computation failed
            return await score(texts, images, timeout_seconds)
        group = self._group
        self._is_expected = False
        group.expected_count -= 1
        if not (group.expected_count or group.members):  # alone
            group.joined.forget(group)
            return await score(texts, images, timeout_seconds)
        member = _Member(score, texts, images, time.monotonic() + timeout_seconds)
        group.add(member, self._wait_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await member.scored
        except TimeoutError as error:
            raise DeadlineExceeded(what="the scoring of the pairs") from error
        except (InternalFault, ModelOutputInvalid):
            # The model refuses a pair, or has no number for it, which may be another shard's.
            return await score(texts, images, member.end_time - time.monotonic())


@dataclass(slots=True, eq=False)
class _Member:
    """The pairs of one call."""

    score: Score
    texts: Sequence[TokenIds]
    images: Sequence[ImageTokenArray]
    end_time: float
    scored: asyncio.Future[Inferred[NDArray[np.float32]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True, eq=False)
class _Group:
    """The calls of one query until they are sent."""

    joined: JoinedScoring
    digest: bytes
    expected_count: int = 0
    """Calls that have neither pairs yet nor left."""
    members: list[_Member] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None

    def add(self, member: _Member, wait_seconds: float) -> None:
        """Adds pairs, and sends the group's once all are there or the wait is over."""
        self.members.append(member)
        if self.timer is None:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(wait_seconds, self.send)
        self.send_if_complete()

    def send_if_complete(self) -> None:
        """Sends the pairs, unless others are expected."""
        if not self.expected_count:
            self.send()

    def send(self) -> None:
        """Sends the pairs; calls that are still expected send their own."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if not self.expected_count:
            self.joined.forget(self)
        members, self.members = self.members, []
        if members := [each for each in members if not each.scored.done()]:
            _begin(members)


def _begin(members: Sequence[_Member]) -> None:
    """Begins one inference for several calls; it ends early once all callers have given up."""
    task = asyncio.get_running_loop().create_task(_score(members))

    def note_end(scored: asyncio.Future[Inferred[NDArray[np.float32]]]) -> None:
        if not scored.cancelled():
            scored.exception()  # or asyncio warns that the exception was never retrieved
        elif all(each.scored.cancelled() for each in members):
            task.cancel()

    for each in members:
        each.scored.add_done_callback(note_end)


async def _score(members: Sequence[_Member]) -> None:
    # Each call keeps its own deadline: a short one must not end the others' inference.
    end_time = max(each.end_time for each in members)
    try:
        inferred = await members[0].score(
            [text for each in members for text in each.texts],
            [image for each in members for image in each.images],
            end_time - time.monotonic(),
        )
    except Exception as error:
        for each in members:
            if not each.scored.done():
                each.scored.set_exception(error)
        return
    start = 0
    costs = inferred.cost.divided([len(each.texts) for each in members])
    for each, cost in zip(members, costs, strict=True):
        end = start + len(each.texts)
        if not each.scored.done():
            each.scored.set_result(replace(inferred, values=inferred.values[start:end], cost=cost))
        start = end
