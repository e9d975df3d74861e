"""Commits many small writes together.

A synced LMDB commit takes about 8 ms however small it is, so writes that arrive within a few
milliseconds share one: about 125 acknowledged writes per second become thousands. The write of a
lone writer is committed at once.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from tandem.errors import InternalFault, Overloaded, ServiceUnavailable, TandemError

log = logging.getLogger(__name__)

_PERHAPS_STORED = "the write may or may not be stored: repeat it with the same request_id"


class Countable(Protocol):
    """Describes a write that knows its size."""

    @property
    def record_count(self) -> int: ...


def _unavailable(why: str) -> TandemError:
    return ServiceUnavailable(service="index", why=why)


_W = TypeVar("_W", bound=Countable)
_R = TypeVar("_R")


class GroupCommit(Generic[_W, _R]):
    """Commits in one thread what all others submit, in that order."""

    def __init__(  # noqa: PLR0913
        self,
        commit: Callable[[Sequence[_W]], Sequence[_R | TandemError]],
        *,
        max_wait_seconds: float = 0.005,
        max_record_count: int = 256,
        max_queued_count: int = 256,
        idle: Callable[[], object] = lambda: None,
        idle_seconds: float = 30.0,
        recover: Callable[[], object] | None = None,
        recoverable: tuple[type[Exception], ...] = (),
        recovery_seconds: float = 0.5,
        refusal: Callable[[str], TandemError] = _unavailable,
    ) -> None:
        """Starts the thread.

        `commit` makes writes durable, in order, and returns an outcome for each. A write waits for
        others up to max_wait_seconds, or until max_record_count records wait; after a commit of a
        single write, during which no other came, it waits for none. `idle` is called
        every idle_seconds. All three callbacks are called from this thread only.

        Where `commit` raises one of the `recoverable` exceptions, its writes are refused as
        possibly stored, and nothing is committed until `recover` returns. While `recover` raises
        one of them or a TandemError, it is called again before each batch and every
        recovery_seconds. `refusal` turns a message into the error that is raised meanwhile. Any
        other exception stops the writer for good.
        """
        self._commit = commit
        self._max_wait_seconds = max_wait_seconds
        self._wait_seconds = 0.0
        self._max_record_count = max_record_count
        self._idle = idle
        self._idle_seconds = idle_seconds
        self._recover = recover
        self._recoverable = recoverable
        self._not_recovered: tuple[type[Exception], ...] = (TandemError, *recoverable)
        self._recovery_seconds = recovery_seconds
        self._refusal = refusal
        self._fault: str | None = None
        self._queue: queue.Queue[tuple[_W, Future[_R]] | None] = queue.Queue(max_queued_count)
        self._stopped: str | None = None
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    def submit(self, write: _W) -> Future[_R]:
        """Returns a future that is done once the write is durable, or refused with a TandemError.

        Cancelling it in time removes the write. Raises Overloaded when too many writes wait, and
        what check() raises.
        """
        self.check()
        future: Future[_R] = Future()
        try:
            self._queue.put_nowait((write, future))
        except queue.Full:
            raise Overloaded(what="writes waiting to be committed") from None
        if self._stopped is not None:
            # It stopped between the check and the put, so no thread reads the queue any more.
            self._refuse_queued()
        return future

    @property
    def queued_count(self) -> int:
        return self._queue.qsize()

    def check(self) -> None:
        """Raises an error where no write can be accepted.

        InternalFault once the thread has stopped, by close() or a permanent fault; the error of
        `refusal` between a fault and the recovery from it.
        """
        if self._stopped is not None:
            raise InternalFault(why=self._stopped)
        if self._fault is not None:
            raise self._refusal(self._fault)

    def close(self) -> None:
        """Commits what was submitted and ends the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._commit_until_closed()
            self._stopped = "the writer is closed"
        except BaseException:  # the disk's contents are unknown, so acknowledge nothing more
            self._stopped = "the writer stopped after a fault; restart the service"
            log.critical("the writer stopped", exc_info=True)
        finally:
            self._refuse_queued()

    def _commit_until_closed(self) -> None:
        idle_time = time.monotonic() + self._idle_seconds
        closing = False
        while not closing:
            wake_time = idle_time
            if self._fault is not None:
                wake_time = min(idle_time, time.monotonic() + self._recovery_seconds)
            batch, closing = self._next_batch(wake_time)
            if self._is_recovered():
                self._commit_batch(batch)
            else:
                self._refuse(batch, f"{self._fault}; the write was not stored")
            if self._fault is None and time.monotonic() >= idle_time:
                self._do_idle_work()
                idle_time = time.monotonic() + self._idle_seconds

    def _do_idle_work(self) -> None:
        try:
            self._idle()
        except self._recoverable as error:
            self._interrupt(error)

    def _is_recovered(self) -> bool:
        """Returns whether writes can be committed, after trying to recover if necessary."""
        if self._fault is None or self._recover is None:
            return True
        try:
            self._recover()
        except self._not_recovered as error:
            self._interrupt(error)
            return False
        self._fault = None
        log.warning("recovered; writing continues")
        return True

    def _interrupt(self, error: Exception) -> None:
        self._fault = f"writing is interrupted by a fault of the disk ({error})"
        log.error("%s", self._fault)

    def _next_batch(self, wake_time: float) -> tuple[list[tuple[_W, Future[_R]]], bool]:
        """Returns the writes to commit together, and whether they are the last ones."""
        batch: list[tuple[_W, Future[_R]]] = []
        record_count = 0
        end_time = wake_time
        while record_count < self._max_record_count:
            try:
                entry = self._queue.get(timeout=max(0.0, end_time - time.monotonic()))
            except queue.Empty:
                break
            if entry is None:
                return batch, True
            if not batch:
                end_time = time.monotonic() + self._wait_seconds
            batch.append(entry)
            record_count += entry[0].record_count
        return batch, False

    def _commit_batch(self, batch: list[tuple[_W, Future[_R]]]) -> None:
        # Drops cancelled writes; from here on they cannot be cancelled.
        batch = [
            (write, future) for write, future in batch if future.set_running_or_notify_cancel()
        ]
        if not batch:
            return
        try:
            outcomes = self._commit([write for write, _ in batch])
        except self._recoverable as error:
            self._interrupt(error)
            for _, future in batch:
                future.set_exception(self._refusal(f"{self._fault}; {_PERHAPS_STORED}"))
            return
        except BaseException:
            for _, future in batch:
                future.set_exception(InternalFault(why=f"the commit failed; {_PERHAPS_STORED}"))
            raise
        # Several callers that hear of their writes together send their next ones together. Set
        # before a lone writer hears of its write, and sends the next.
        is_alone = len(batch) == 1 and self._queue.empty()
        self._wait_seconds = 0.0 if is_alone else self._max_wait_seconds
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, TandemError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _refuse(self, batch: Sequence[tuple[_W, Future[_R]]], why: str) -> None:
        for _, future in batch:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._refusal(why))

    def _refuse_queued(self) -> None:
        while True:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return
            if entry is not None and entry[1].set_running_or_notify_cancel():
                entry[1].set_exception(
                    InternalFault(why="the writer stopped; the write was not stored")
                )
