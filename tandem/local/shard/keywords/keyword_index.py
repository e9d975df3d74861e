"""Keeps the words of one index, and finds items by them."""

import threading
from collections.abc import Callable, Sequence

from tandem.contract.content import Modality
from tandem.local.shard.keywords.item_text import ItemText
from tandem.local.shard.keywords.word_index import WordIndex
from tandem.stages.shard_answer import WordHit

MAX_WORD_COUNT = 64
"""Different words of a query that are searched for; the cost grows with their number."""

# How many times more hits are fetched where hits are dropped, or tied at the end.
_FETCH_FACTOR = 4
_MAX_TIED_FACTOR = 16
# So many hits are fetched at most: 200,000 took half a second, in which no write gets through.
_MAX_FETCHED_COUNT = 50_000


class KeywordIndex:
    """Searches the texts of an index; those of each modality have their own word statistics.

    A search sees every change that was made before the last refresh(). Safe from any thread.
    """

    def __init__(self) -> None:
        """Creates an empty index; it has every item unless begin_build() is called."""
        # A modality without texts costs no threads.
        self._parts: dict[Modality, WordIndex] = {}
        self._lock = threading.Lock()
        self._is_changed = False
        self._changed_ids: set[str] | None = None

    @property
    def is_built(self) -> bool:
        """Whether it has every item; otherwise a build is filling it."""
        return self._changed_ids is None

    def item_count(self, modality: Modality) -> int:
        """Returns how many items are found by words."""
        part = self._parts.get(modality)
        return 0 if part is None else part.item_count()

    def put(self, texts: Sequence[ItemText]) -> None:
        """Adds or replaces the texts of items; a search sees all of them or none."""
        with self._lock:
            if self._changed_ids is not None:
                self._changed_ids.update(text.item_id for text in texts)
            self._put(texts)

    def delete(self, item_ids: Sequence[str]) -> None:
        """Removes items, ignoring missing ids."""
        with self._lock:
            if self._changed_ids is not None:
                self._changed_ids.update(item_ids)
            for part in self._parts.values():
                for item_id in item_ids:
                    part.delete(item_id)
            self._is_changed = True

    def begin_build(self) -> None:
        """Begins to take items from put_stored(), and to note which ones change meanwhile."""
        with self._lock:
            self._changed_ids = set()

    def put_stored(self, texts: Sequence[ItemText]) -> None:
        """Adds items as the store had them, unless they changed since begin_build()."""
        with self._lock:
            changed = self._changed_ids or set()
            self._put([text for text in texts if text.item_id not in changed])

    def end_build(self) -> None:
        """Ends the build: the index has every item."""
        with self._lock:
            self._changed_ids = None

    def refresh(self) -> None:
        """Makes earlier changes visible, which takes some milliseconds where there are any."""
        with self._lock:
            if self._is_changed:
                for part in self._parts.values():
                    part.commit()
                self._is_changed = False

    def search(
        self,
        text: str,
        modality: Modality,
        k: int,
        keep: Callable[[str], bool],
        among: Sequence[str] | None = None,
    ) -> list[WordHit]:
        """Returns the k items to `keep` that match the words best, ties by smaller item id.

        One word suffices. Of very many equal scores at the end, any may be returned. `among`: ids
        that are searched alone, for a `keep` of few items; otherwise it looks at the first 50,000.
        """
        part = self._parts.get(modality)
        words = [] if part is None else part.words_of(text)[:MAX_WORD_COUNT]
        if part is None or not words:
            return []
        count = k + 1
        while True:
            found = part.search(words, count, among)
            hits = [hit for hit in found if keep(hit.item_id)]
            if len(found) < count or count >= _MAX_FETCHED_COUNT:
                break
            is_tied = len(hits) <= k or hits[-1].score == hits[k - 1].score
            if len(hits) > k and (not is_tied or count > k * _MAX_TIED_FACTOR):
                break
            count = min(count * _FETCH_FACTOR, _MAX_FETCHED_COUNT)
        hits.sort(key=lambda hit: (-hit.score, hit.item_id))
        return hits[:k]

    def _put(self, texts: Sequence[ItemText]) -> None:
        for text in texts:
            for modality, part in self._parts.items():
                # Out of the other modality too: a text may be replaced by a picture.
                if modality is not text.modality or not text.text:
                    part.delete(text.item_id)
            if text.text:
                self._part(text.modality).put(text.item_id, text.text)
        self._is_changed = True

    def _part(self, modality: Modality) -> WordIndex:
        if modality not in self._parts:
            self._parts[modality] = WordIndex()
        return self._parts[modality]
