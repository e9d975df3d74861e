"""Keeps the memory of the process that a shard is in within INDEX_MEMORY_BYTES."""

import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tandem.errors import StoreFull
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.searchable_index import SearchableIndex

# What FAISS trains on is 64 rows a list, in 2 to 2.8 times as many lists as the root of the rows.
_TRAINED_PER_ROOT = 64 * 2.8
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Says what fits; mapped rows do not count, as the kernel takes their memory back."""

    limit_bytes: int = 0
    """0 for none."""

    def check(self, indexes: Iterable[SearchableIndex]) -> None:
        """Raises StoreFull where items added to the indexes would leave no room for the next build.

        That holds a second FAISS index, and the rows that it is trained on.
        """
        if not self.limit_bytes:
            return
        parts = [part for index in indexes for part in index.parts()]
        build_bytes = max(map(_build_bytes, parts), default=0)
        if (taken_bytes := anonymous_bytes()) + build_bytes > self.limit_bytes:
            raise StoreFull(
                why=f"the process takes {taken_bytes:,} bytes of memory, and building an index "
                f"{build_bytes:,} more, of {self.limit_bytes:,} by INDEX_MEMORY_BYTES",
                advice="delete items, raise the limit, or add shards",
            )

    def asks_for_bytes(self, indexes: Iterable[SearchableIndex]) -> bool:
        """Returns whether rows exceed the memory that is left, and fit in as one byte a value.

        They must fit in twice, as an index is searched until the next one is built.
        """
        if not self.limit_bytes:
            return False
        value_count = sum(
            part.rows.row_count * part.rows.dimension
            for index in indexes
            for part in index.parts()
            if part.faiss_index is None or not part.faiss_index.is_refined
        )
        return 2 * value_count < self.limit_bytes - anonymous_bytes() < 4 * value_count


def anonymous_bytes() -> int:
    """Returns the memory of this process that is not mapped from files."""
    _, resident, shared, *_ = map(int, _STATM.read_text().split())
    return (resident - shared) * resource.getpagesize()


def _build_bytes(part: ModalityIndex) -> int:
    if part.faiss_index is None:
        return 0
    trained = _TRAINED_PER_ROOT * part.rows.row_count**0.5 * 4 * part.rows.dimension
    return part.faiss_index.size_bytes() + int(trained)
