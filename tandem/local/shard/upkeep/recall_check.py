"""Repeats sampled searches exactly, to measure live recall and to notice where it is low."""

import math
import time
from collections.abc import Iterator, Mapping

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.content import Modality
from tandem.local.shard.metrics import (
    LIVE_RECALL,
    LIVE_RECALL_SEARCHES,
    MAINTENANCE_DURATION,
    REBUILD_REQUESTS,
)
from tandem.local.shard.retrieval.index_type import AUTO
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.upkeep.live_recall import DIRECTIONS, LiveRecall
from tandem.local.shard.upkeep.tuning_file import TuningFile
from tandem.stages.retrieval import ShardQuery

log = get_logger()

_MIN_SEARCH_COUNT = 30
_SEARCH_COUNT_PER_STEP = 4
# Times the duration of the last repeated search: repeating takes at most a twentieth of a core.
_PAUSE_FACTOR = 19


class RecallCheck:
    """Spends a small share of a core on repeating searches; for one thread."""

    def __init__(
        self, live_recall: LiveRecall, tunings: TuningFile, recall_floor: float, shard: str
    ) -> None:
        """Measures nothing yet; recall below the floor asks for a rebuild, `shard` labels it."""
        self._shard = shard
        self._live_recall = live_recall
        self._tunings = tunings
        self._recall_floor = recall_floor
        self._next_search_time = 0.0
        # One rebuild in a window: only after that does the recall show what the rebuild did.
        self._quiet_until_times: dict[tuple[str, Modality], float] = {}

    def step(self, indexes: Mapping[str, SearchableIndex]) -> bool:
        """Repeats some sampled searches if it is time; returns whether there were any."""
        worked = False
        for _ in range(_SEARCH_COUNT_PER_STEP):
            start_time = time.monotonic()
            if start_time < self._next_search_time or (query := self._live_recall.take()) is None:
                break
            if (index := indexes.get(query.index_id)) is None:
                continue
            with MAINTENANCE_DURATION.labels("recall").time():
                self._repeat(query, index)
            now = time.monotonic()
            self._next_search_time = now + _PAUSE_FACTOR * (now - start_time)
            worked = True
        measured = self._live_recall.recall()
        for direction in DIRECTIONS:
            recall, count = measured.get(direction, (math.nan, 0))
            LIVE_RECALL.labels(self._shard, direction).set(recall)
            LIVE_RECALL_SEARCHES.labels(self._shard, direction).set(count)
        return worked

    def low_recalls(self, indexes: Mapping[str, SearchableIndex]) -> Iterator[tuple[str, Modality]]:
        """Yields the indexes to rebuild because their recall fell below the floor."""
        now = time.monotonic()
        for index_id in self._live_recall.measured_ids() & indexes.keys():
            for direction, (recall, count) in self._live_recall.recall(index_id).items():
                modality = Modality(direction.rpartition("_to_")[2])
                key = index_id, modality
                is_low = count >= _MIN_SEARCH_COUNT and recall < self._recall_floor
                if not is_low or now < self._quiet_until_times.get(key, 0.0):
                    continue
                self._quiet_until_times[key] = now + self._live_recall.window_seconds
                log.warning("recall low", index_id=index_id, direction=direction, recall=recall)
                tuning = self._tunings.get(index_id, modality)
                if tuning.index_type == AUTO and not tuning.parameters:
                    yield key
                else:  # an operator pinned it, and a rebuild would undo that
                    REBUILD_REQUESTS.labels("recall_pinned").inc()

    def forget(self, index_id: str) -> None:
        for modality in Modality:
            self._quiet_until_times.pop((index_id, modality), None)

    def _repeat(self, query: ShardQuery, index: SearchableIndex) -> None:
        (query_D,) = query.embeddings
        with index.reading():
            part = index.part(query.modality)
            found = part.search(query_D, query.retrieve_k, query.where).hits
            scan = part.frozen_scan(query.where)
        # A million comparisons, outside the lock: changes wait for readers, and searches for
        # waiting changes.
        self._live_recall.note(query, found, scan(query_D, query.retrieve_k).hits)
