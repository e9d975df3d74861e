"""Caches the rows that recent filters match, until the rows change."""

import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from tandem.contract.filtering.filters import Filter
from tandem.local.shard.retrieval.arrays import Mask

# A mask of a million rows is 1 MB.
_KEPT_COUNT = 16


class FilterMasks:
    """Caches the masks of the latest filters, so that a repeated filter costs nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._masks: OrderedDict[Filter, tuple[Mask, int]] = OrderedDict()

    def forget(self) -> None:
        """Drops all masks, because an item changed."""
        with self._lock:
            self._version += 1
            self._masks.clear()

    def get(self, where: Filter, evaluate: Callable[[], Mask]) -> tuple[Mask, int]:
        """Returns the filter's mask over rows, and how many rows it matches."""
        with self._lock:
            version = self._version
            if kept := self._masks.get(where):
                self._masks.move_to_end(where)
                return kept
        mask = evaluate()
        count = int(np.count_nonzero(mask))
        with self._lock:
            if version == self._version:
                self._masks[where] = (mask, count)
                while len(self._masks) > _KEPT_COUNT:
                    self._masks.popitem(last=False)
        return mask, count
