"""Computes neighbours of a corpus by the model of a running system, which embeds its contents."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import numpy as np

from tandem.cli.neighbours.neighbour_gallery import BuildOptions, neighbour_gallery
from tandem.cli.refusals import described
from tandem.cli.terminal.progress import LongWork
from tandem.client.access import Access
from tandem.client.calls.remote import Remote
from tandem.client.calls.retries import DEFAULT_RETRIES
from tandem.client.sendable import checked_content
from tandem.contract.content import Modality
from tandem.contract.limits import MAX_CONTENT_COUNT, parts_within
from tandem.contract.search.answer_wire import content_to_proto, item_error
from tandem.corpus.readable_records import SkippedRecords, check_picture_there
from tandem.corpus.records import Record
from tandem.lab.evaluation.gallery import Gallery, PictureContent
from tandem.lab.neighbours.lists.corpus_neighbours import (
    CorpusNeighbours,
    NeighbourSource,
    check_depth,
    corpus_neighbours,
)
from tandem.lab.neighbours.lists.gallery_neighbours import corpus_digest
from tandem.lab.neighbours.lists.neighbour_lists import Scores
from tandem.v1 import content_pb2, content_service_pb2

_TIMEOUT_SECONDS = 60.0
_CALL_BYTES = 8 * 2**20
"""About how much one call sends; a larger content goes alone."""


class ServedNeighbourBuild:
    """Makes galleries, and computes their neighbours by the services at one address."""

    def __init__(self, asked: BuildOptions, skipped: SkippedRecords) -> None:
        """Sends nothing yet."""
        self._asked, self._skipped = asked, skipped

    def gallery(self, records: Iterable[Record]) -> Gallery:
        """Returns the records whose pictures and captions are there; the server checks the rest."""
        language, count = self._asked.language, self._asked.captions
        return neighbour_gallery(records, language, count, check_picture_there, self._skipped)

    def neighbours(self, gallery: Gallery) -> CorpusNeighbours:
        """Returns the neighbours of each item.

        Raises ValueError for fewer than k items, for a content that the server refuses, and for a
        model that changes meanwhile, and the TandemError of a call that fails.
        """
        part, address = self._asked.part, self._asked.address
        assert address is not None, "it is what asks for a server's model"
        check_depth(self._asked.k, len(gallery.records), len(gallery.pairs))  # before it takes long
        access = Access.from_environment()
        remote = Remote(address, _TIMEOUT_SECONDS, access, DEFAULT_RETRIES)
        with LongWork(often_short=True) as work, closing(remote):
            work.show("embed the corpus", 0)
            embedder = _Embedder(remote, address)
            records = gallery.records
            pictures_ID = embedder.embeddings(
                [each.record_id for each in records], map(gallery.content_of, records)
            )
            texts_TD = embedder.embeddings(
                [each.caption_id for _, each in gallery.pairs],
                (each.text for _, each in gallery.pairs),
            )
        source = NeighbourSource(
            embedder.fingerprint, part.corpus, part.split, part.seed, corpus_digest(gallery)
        )
        return corpus_neighbours(
            source,
            gallery.item_ids[Modality.IMAGE],
            gallery.item_ids[Modality.TEXT],
            pictures_ID,
            texts_TD,
            [number for number, (_, captions) in enumerate(gallery.chosen) for _ in captions],
            self._asked.k,
        )


class _Embedder:
    """Embeds contents by one model, call by call."""

    def __init__(self, remote: Remote, address: str) -> None:
        self.fingerprint = ""
        self._remote, self._address = remote, address

    def embeddings(self, names: Sequence[str], contents: Iterable[str | PictureContent]) -> Scores:
        """Returns float32 [N, D]; `names` are for errors."""
        found = [each for batch in _batches(contents) for each in self._embedded(names, batch)]
        return np.stack(found)

    def _embedded(
        self, names: Sequence[str], batch: Sequence[tuple[int, content_pb2.Content]]
    ) -> Iterator[Scores]:
        request = content_service_pb2.EmbedContentsRequest(contents=[each for _, each in batch])
        answer = self._remote.embed(request)
        if self.fingerprint not in ("", answer.model_fingerprint):
            raise ValueError(
                f"the model at {self._address} changed from {self.fingerprint[:12]} to "
                f"{answer.model_fingerprint[:12]} meanwhile; build the lists again"
            )
        self.fingerprint = answer.model_fingerprint
        for (number, _), result in zip(batch, answer.results, strict=True):
            if result.HasField("error"):
                why = described(item_error(result.error))
                raise ValueError(f"{names[number]} is refused at {self._address}: {why}")
            yield np.frombuffer(result.embedding.values, "<f4")


def _batches(
    contents: Iterable[str | PictureContent],
) -> Iterator[list[tuple[int, content_pb2.Content]]]:
    """Returns numbered messages, as many at a time as one call may have."""
    messages = (content_to_proto(checked_content(each, "a content")) for each in contents)
    return parts_within(
        enumerate(messages), lambda each: each[1].ByteSize(), _CALL_BYTES, MAX_CONTENT_COUNT
    )
