"""How many bytes of contents one answer has room for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tandem.errors import AnswerTooLarge

MAX_ANSWER_CONTENT_BYTES = 48 * 2**20
"""A message has 64 MiB; the rest is for ids, scores and the cursor."""

Take: TypeAlias = Callable[[int], None]
"""Takes so many bytes of the room; raises AnswerTooLarge where they are not left."""


class ContentRoom:
    """Room for the contents of one answer, or of the answers of one batch together.

    Whatever is read is taken first from here, so that no caller makes us hold more than this.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        """Of MAX_ANSWER_CONTENT_BYTES unless told."""
        self._limit_bytes = MAX_ANSWER_CONTENT_BYTES if limit_bytes is None else limit_bytes
        self._left_bytes = self._limit_bytes

    @contextmanager
    def taking(self) -> Iterator[Take]:
        """Yields what takes from the room; all that it took is given back where the block fails."""
        taken_bytes = 0

        def take(byte_count: int) -> None:
            nonlocal taken_bytes
            if byte_count > self._left_bytes:
                raise AnswerTooLarge(limit=self._limit_bytes)
            self._left_bytes -= byte_count
            taken_bytes += byte_count

        try:
            yield take
        except BaseException:
            self._left_bytes += taken_bytes
            raise
