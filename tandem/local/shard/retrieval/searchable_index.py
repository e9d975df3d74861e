"""Holds one index in memory, and searches it."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tandem.contract.content import Modality
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import Filter
from tandem.contract.search.item_changes import ItemPatch, patched
from tandem.contract.search_path import KeywordState
from tandem.local.item_store.item_store import StoredEmbedding
from tandem.local.shard.keywords.item_text import ItemText, item_text
from tandem.local.shard.retrieval.arrays import F32, I64, Mask
from tandem.local.shard.retrieval.embedding_rows import BLOCK_ROW_COUNT, EmbeddingRows
from tandem.local.shard.retrieval.exact_scan import compare_rows
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.neighbourhood import neighbourhood
from tandem.local.shard.retrieval.row_file import RowFile
from tandem.platform.files.shared_lock import SharedLock
from tandem.stages.index_info import IndexInfo
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import Found, KeywordFound

if TYPE_CHECKING:
    from tandem.local.shard.keywords.keyword_index import KeywordIndex

# Embeddings added at a time while loading; few enough to need little memory.
_LOAD_COUNT = 4096
# Up to so many items of a filter, words are searched for among them alone.
_FEW_COUNT = 2_000


@dataclass(frozen=True, slots=True)
class KeywordSource:
    """Says where the words of items are kept, and which attributes they are taken from."""

    index: "KeywordIndex"
    attributes: Collection[str]


class SearchableIndex:
    """Searches and changes the texts and images of one index under one lock."""

    def __init__(
        self,
        info: IndexInfo,
        parts: Mapping[Modality, ModalityIndex] | None = None,
        keywords: KeywordSource | None = None,
        rows_folder: Path | None = None,
    ) -> None:
        """Takes over parts read from a snapshot; missing parts are empty.

        `keywords` follow every change of items; None where items are not found by words.
        `rows_folder` gets the files of missing parts' rows; None keeps those in memory.
        """
        self.info = info
        self.keywords = keywords
        self._parts = {
            modality: (parts or {}).get(modality)
            or ModalityIndex(
                EmbeddingRows(info.dimension, file=_new_file(rows_folder, info.dimension))
            )
            for modality in Modality
        }
        self._pending: dict[Modality, list[_Change | _NewAttributes]] = {}
        self._lock = SharedLock()

    def item_count(self, modality: Modality) -> int:
        return len(self._parts[modality])

    def part(self, modality: Modality) -> ModalityIndex:
        """Returns the items of one modality, for use inside reading() or changing()."""
        return self._parts[modality]

    def parts(self) -> list[ModalityIndex]:
        """Returns the items of both modalities, as part() does."""
        return list(self._parts.values())

    def reading(self) -> AbstractContextManager[None]:
        """Holds off changes, while searches continue."""
        return self._lock.shared()

    def changing(self) -> AbstractContextManager[None]:
        """Holds off searches and changes."""
        return self._lock.exclusive()

    def load(self, items: Iterable[StoredEmbedding]) -> None:
        """Upserts any number of items of different ids, in parts."""
        remaining, is_room = iter(items), True
        while part := list(itertools.islice(remaining, _LOAD_COUNT)):
            self.upsert(part)
            try:
                if is_room:
                    self.save_rows()
            except OSError:  # on a full disk rows stay in memory, and are tried again later
                is_room = False

    def upsert(self, items: Sequence[StoredEmbedding]) -> None:
        """Adds or replaces items of different ids; a search sees all of them or none."""
        item_ids = [item.item_id for item in items]
        with self._lock.exclusive():
            if self.keywords is not None:
                names = self.keywords.attributes
                self.keywords.index.put(
                    [
                        ItemText(
                            item.item_id,
                            item.modality,
                            item_text(item.text, item.attributes, names),
                        )
                        for item in items
                    ]
                )
            for modality in Modality:
                same = [item for item in items if item.modality is modality]
                # Out of the other modality too: a text may be replaced by a picture.
                self._change(modality, _Change(item_ids, same))

    def patch(self, patches_of: Mapping[str, Sequence[ItemPatch]]) -> Sequence[str]:
        """Changes attributes; returns the ids of items whose words change too, still as before."""
        names = self.keywords.attributes if self.keywords else ()
        changed: dict[str, Attributes] = {}
        reworded = []
        for item_id, patches in patches_of.items():
            rows = ((part, part.rows.ids.row_of(item_id)) for part in self.parts())
            old = next((part.attributes.get(row, {}) for part, row in rows if row is not None), {})
            new = patched(patches, old)
            if item_text("", old, names) == item_text("", new, names):
                changed[item_id] = new
            else:
                reworded.append(item_id)
        with self._lock.exclusive():
            for modality in Modality:
                self._change(modality, _NewAttributes(changed))
        return reworded

    def selected(
        self, item_ids: Sequence[str] | None, where: Filter | None
    ) -> Sequence[str] | None:
        """Returns those of the ids that the filter matches; of None all that do, if few do."""
        with self._lock.shared():
            found = []
            for part in self.parts():
                selection = part.selection(where)
                if item_ids is None:
                    if (few := _few_of(part, selection)) is None:
                        return None
                    found += few
                    continue
                rows = ((each, part.rows.ids.row_of(each)) for each in item_ids)
                found += [
                    each
                    for each, row in rows
                    if row is not None and (selection is None or selection[row])
                ]
            return sorted(found)

    def save_rows(self, least_count: int = BLOCK_ROW_COUNT) -> None:
        """Moves a modality's rows out of memory, where at least `least_count` are in it.

        Searches and changes continue. Raises OSError.
        """
        for part in self.parts():
            if part.rows.unsaved_count >= least_count:
                part.rows.save(self.changing)

    def delete(self, item_ids: Sequence[str]) -> None:
        """Removes items, ignoring missing ids."""
        with self._lock.exclusive():
            if self.keywords is not None:
                self.keywords.index.delete(item_ids)
            for modality in Modality:
                self._change(modality, _Change(item_ids, ()))

    def search(self, query: ShardQuery, *, at_once: bool = False) -> list[Found]:
        """Returns, for each embedding, the min(k, matching) nearest items, best first.

        Ties among the compared items are ordered by smaller item id. Raises ModelMismatch or
        EmbeddingInvalid where the embeddings are not of this index's model, and with `at_once`
        LockBusy instead of waiting for a change.
        """
        self.info.check(query.fingerprint, query.embeddings)
        with self._lock.shared(at_once=at_once):
            part = self._parts[query.modality]
            found = [
                part.search(each_D, query.retrieve_k, query.where) for each_D in query.embeddings
            ]
            if not query.embeddings_included:
                return found
            rows = [np.array([hit.row for hit in one.hits], dtype=np.int64) for one in found]
            return [
                replace(one, embeddings=part.rows.gather(rows_K))
                for one, rows_K in zip(found, rows, strict=True)
            ]

    @property
    def keyword_state(self) -> KeywordState:
        """Returns whether this index can be searched by words."""
        if self.keywords is None:
            return KeywordState.DISABLED
        is_built = self.keywords.index.is_built
        return KeywordState.SEARCHED if is_built else KeywordState.BEING_BUILT

    def search_words(self, query: ShardQuery) -> KeywordFound:
        """Returns the items that the query's words find, with their similarities to its embeddings.

        It sees changes since search(), which search() did not.
        """
        state = self.keyword_state
        if self.keywords is None or state is not KeywordState.SEARCHED:
            return KeywordFound(state)
        # Before the lock: what was written before is searched from here on.
        self.keywords.index.refresh()
        with self._lock.shared():
            part = self._parts[query.modality]
            selection = part.selection(query.where)

            def keep(item_id: str) -> bool:
                row = part.rows.ids.row_of(item_id)
                return row is not None and (selection is None or bool(selection[row]))

            hits = self.keywords.index.search(
                query.keywords, query.modality, query.retrieve_k, keep, _few_of(part, selection)
            )
            rows = [part.rows.ids.row_of(hit.item_id) for hit in hits]
            rows_K = np.array([row for row in rows if row is not None], dtype=np.int64)
            return KeywordFound(
                KeywordState.SEARCHED,
                hits,
                [_similarities(part.rows, each_D, rows_K) for each_D in query.embeddings],
                part.rows.gather(rows_K) if query.embeddings_included and hits else None,
            )

    def find_neighbours(self, query: ShardNeighbourQuery) -> ShardNeighbours:
        """Returns the neighbours of both modalities, of one state of the index.

        Raises ModelMismatch or EmbeddingInvalid as search().
        """
        self.info.check(query.fingerprint, query.nodes)
        with self._lock.shared():
            return {modality: neighbourhood(part, query) for modality, part in self._parts.items()}

    def begin_replacing(self, modality: Modality) -> None:
        """Records the changes of the modality from now on, for the part that will replace it."""
        self._pending[modality] = []

    def replace(self, modality: Modality, part: ModalityIndex) -> None:
        """Brings a part made of the rows at begin_replacing() up to date, and serves it."""
        while len(self._pending[modality]) > 1:
            with self._lock.exclusive():
                changes, self._pending[modality] = self._pending[modality], []
            for change in changes:
                change.apply(part)
        with self._lock.exclusive():
            for change in self._pending.pop(modality):
                change.apply(part)
            self._parts[modality] = part

    def stop_replacing(self, modality: Modality) -> None:
        with self._lock.exclusive():
            self._pending.pop(modality, None)

    def _change(self, modality: Modality, change: "_Change | _NewAttributes") -> None:
        change.apply(self._parts[modality])
        if modality in self._pending:
            self._pending[modality].append(change)


def _new_file(folder: Path | None, dimension: int) -> RowFile | None:
    return None if folder is None else RowFile(folder, dimension)


def _few_of(part: ModalityIndex, selection: Mask | None) -> list[str] | None:
    """Returns the ids of the selected items if they are few; otherwise None."""
    if selection is None or np.count_nonzero(selection) > _FEW_COUNT:
        return None
    return part.rows.ids.ids_of(np.flatnonzero(selection))


def _similarities(rows: EmbeddingRows, query_D: F32, rows_K: I64) -> F32:
    """Returns the similarity of each row, in the order of `rows_K`, as a search gives it."""
    similarities, found = compare_rows(rows, query_D, rows_K, len(rows_K))
    by_row = dict(zip(found.tolist(), similarities.tolist(), strict=True))
    return np.array([by_row[row] for row in rows_K.tolist()], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class _NewAttributes:
    """Replaces the attributes of some items."""

    attributes_of: Mapping[str, Attributes]

    def apply(self, part: ModalityIndex) -> None:
        part.replace_attributes(self.attributes_of)


class _Change:
    """Removes some items and adds others."""

    def __init__(self, removed_ids: Sequence[str], items: Sequence[StoredEmbedding]) -> None:
        self._removed_ids = removed_ids
        self._items = items

    def apply(self, part: ModalityIndex) -> None:
        part.delete(self._removed_ids)
        if self._items:
            part.upsert(self._items)
