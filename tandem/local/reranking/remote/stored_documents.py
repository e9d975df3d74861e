"""Reads stored contents as documents for a remote cross-encoder, and caches them."""

import sys
from collections.abc import Sequence
from functools import partial

from tandem.chassis.capacity.cache_metrics import CacheMetrics
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.capacity.single_flight_cache import Computation, SingleFlightCache
from tandem.contract.content import Content, ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.regions import RegionContent
from tandem.errors import ImageTooLarge, ImageUnreadable
from tandem.local.reranking.picture_tokens import PictureKey
from tandem.local.reranking.remote.pictures import data_uri
from tandem.local.reranking.remote.shapes import Document
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image import decoding_bytes
from tandem.stages.candidate_store import CandidateStore
from tandem.stages.reranking import ScoreQuery

_NAME = "remote_documents"
# Without the texts and the ids.
_ENTRY_BYTES = 400
# The work that DeadlineExceeded names.
_WORK = "the reading of the candidates"


class StoredDocuments:
    """Makes a document of one version of an item once: scaling a photograph takes a while."""

    def __init__(
        self,
        reader: CandidateStore,
        turns: CallerTurns,
        picture_side: int,
        *,
        cache_bytes: int = 0,
        heif: HeifReader | None = None,
    ) -> None:
        """Scales pictures down to `picture_side`, in the threads; 0 bytes turn the cache off."""
        self._reader = reader
        self._turns = turns
        self._picture_side = picture_side
        self._heif = heif
        self._cache: SingleFlightCache[PictureKey, Document | None, None] = SingleFlightCache(
            cache_bytes, _entry_bytes, CacheMetrics(_NAME), lambda document: document is not None
        )

    async def of_content(self, content: TextContent | ImageContent) -> Document:
        """Returns the document of a content; raises ImageUnreadable and ImageTooLarge."""
        if isinstance(content, TextContent):
            return Document(text=content.text)
        made = partial(data_uri, content.image_bytes, self._picture_side, self._heif)
        uri = await self._turns.run(made, decoding_bytes(content))
        return Document(picture_uri=uri)

    async def of_items(
        self,
        keys: Sequence[PictureKey],
        asked: ScoreQuery,
        modality: Modality,
        deadline: Deadline,
    ) -> dict[str, Document]:
        """Returns the documents of this modality by item id, without those that cannot be read.

        Raises errors of the store, and DeadlineExceeded.
        """

        async def compute(missing: Sequence[PictureKey]) -> Computation[Document | None, None]:
            # One by one, because a stored picture may have tens of MB, and its document has little.
            return Computation([await self._of_item(key, asked, deadline) for key in missing], None)

        lookup = await self._cache.get(keys, compute, deadline.left_for(_WORK))
        return {
            key.item_id: document
            for key, document in zip(keys, lookup.values, strict=True)
            if document is not None and document.modality is modality
        }

    async def _of_item(
        self, key: PictureKey, asked: ScoreQuery, deadline: Deadline
    ) -> Document | None:
        deadline.left_for(_WORK)
        found = await self._reader.contents(asked, [key.item_id])
        # An item that was written since has another version, so no later call looks this one up.
        content: Content | None = found[key.item_id].content if found else None
        if content is None or isinstance(content, RegionContent):
            return None
        try:
            return await self.of_content(content)
        except (ImageUnreadable, ImageTooLarge):
            # It was read when it was ingested, by rules of that time.
            return None


def _entry_bytes(key: PictureKey, document: Document | None) -> int:
    size_bytes = _ENTRY_BYTES + sys.getsizeof(key.item_id)
    if document is not None:
        size_bytes += sys.getsizeof(document.text) + sys.getsizeof(document.picture_uri)
    return size_bytes
