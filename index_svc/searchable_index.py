"""One index's items in memory, ready to be searched."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from index_svc.flat_index import F32, FlatIndex, Hit
from index_svc.shared_lock import SharedLock
from tandem.content import Modality
from tandem.corpus.item_store import IndexInfo, StoredEmbedding
from tandem.errors import EmbeddingInvalid, ModelMismatch

# Embeddings handed to FAISS at once while loading: few enough to cost no memory worth naming.
_LOAD_COUNT = 4096


class SearchableIndex:
    """Texts and images in a flat index each, changed and searched behind one lock."""

    def __init__(self, info: IndexInfo) -> None:
        """Makes an index without items."""
        self._info = info
        self._flats = {modality: FlatIndex(info.dimension) for modality in Modality}
        self._lock = SharedLock()

    def item_count(self, modality: Modality) -> int:
        """Returns how many items of the modality it has."""
        return len(self._flats[modality])

    def load(self, items: Iterable[StoredEmbedding]) -> None:
        """Upserts any number of items of different ids, a part at a time."""
        remaining = iter(items)
        while part := list(itertools.islice(remaining, _LOAD_COUNT)):
            self.upsert(part)

    def upsert(self, items: Sequence[StoredEmbedding]) -> None:
        """Adds items of different ids, replacing those there; a search sees all of them or none."""
        item_ids = [item.item_id for item in items]
        with self._lock.exclusive():
            for modality, flat in self._flats.items():
                flat.delete(item_ids)  # of either modality: an item may come back in the other one
                if same := [item for item in items if item.modality is modality]:
                    embeddings_ND = np.stack([item.embedding for item in same])
                    flat.upsert([item.item_id for item in same], embeddings_ND)

    def delete(self, item_ids: Sequence[str]) -> None:
        """Removes items; ids that are not there are no error."""
        with self._lock.exclusive():
            for flat in self._flats.values():
                flat.delete(item_ids)

    def search(
        self, fingerprint: str, modality: Modality, queries_QD: Sequence[F32], k: int
    ) -> list[list[Hit]]:
        """Returns, for each query, the min(k, all) nearest items of the modality, best first.

        Ties by smaller item id. Raises ModelMismatch or EmbeddingInvalid where the queries are not
        of this index's model.
        """
        if fingerprint != self._info.fingerprint:
            raise ModelMismatch(request=fingerprint, index=self._info.fingerprint)
        for query_D in queries_QD:
            if len(query_D) != self._info.dimension:
                raise EmbeddingInvalid(
                    why=f"it has {len(query_D)} dimensions instead of {self._info.dimension}"
                )
        with self._lock.shared():
            return [self._flats[modality].search(query_D, k) for query_D in queries_QD]
