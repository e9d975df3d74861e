"""Computes neighbours of corpora for commands. It imports torch, so import it late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tandem.cli.progress import LongWork, query_progress
from tandem.corpus.records import Record
from tandem.evaluation.gallery import DIRECTIONS, Gallery, languages_of, make_gallery
from tandem.evaluation.offline import OfflineGallery
from tandem.model_io.precision import Precision
from tandem.model_io.readable_records import (
    ModelCheck,
    OnError,
    SkippedRecords,
    readable_records,
)
from tandem.model_io.text import TextPreprocessor
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.lowered import lowered
from tandem.neighbours.corpus_neighbours import CorpusNeighbours, NeighbourSource, check_depth
from tandem.neighbours.gallery_neighbours import corpus_digest, gallery_neighbours


class NeighbourBuild:
    """Makes galleries, and computes their neighbours by one checkpoint or two."""

    def __init__(
        self,
        folder: Path | None,
        retriever: Path | None,
        precision: Precision,
        k: int,
        pool_size: int,
        on_error: OnError,
        skipped: SkippedRecords,
    ) -> None:
        """Loads the checkpoints; raises ValueError for a folder that is not one."""
        self._loaded = load_checkpoint(folder or default_checkpoint())
        self._finder = load_checkpoint(retriever) if retriever else None
        self._precision = precision
        self._k, self._pool_size = k, pool_size
        self._on_error, self._skipped = on_error, skipped

    def gallery(self, records: Iterable[Record], language: str | None, captions: int) -> Gallery:
        """Returns the records whose chosen captions the model can read, as one gallery.

        Raises ValueError where none is left, and for records without a shared language.
        """
        model = self._loaded.model.config
        texts = TextPreprocessor(self._loaded.tokenizer, model.max_text_tokens)
        check = ModelCheck(model.image_rules.size, texts, fit=model.image_rules.fit)
        spoken = [
            each
            for each in records
            if language is None or any(said.language == language for said in each.captions)
        ]
        if not spoken:
            raise ValueError(f"no record has a caption{f' in {language!r}' if language else ''}")
        languages = [language] if language else languages_of(spoken)
        gallery = make_gallery(spoken, languages, captions)
        readable = {
            number
            for number, (record, chosen) in enumerate(gallery.chosen)
            if any(
                readable_records(
                    [replace(record, captions=chosen)], check, self._on_error, self._skipped
                )
            )
        }
        if not readable:
            raise ValueError(f"no record is left; {'; '.join(self._skipped.lines())}")
        return gallery.only(readable)

    def neighbours(self, gallery: Gallery, corpus: str, split: str, seed: int) -> CorpusNeighbours:
        """Returns the neighbours of each item; raises ValueError for fewer than k items."""
        check_depth(self._k, len(gallery.records), len(gallery.pairs))  # before it takes long
        checkpoint = self._finder or self._loaded
        source = NeighbourSource(
            export_manifest(checkpoint.files, self._precision, {}).fingerprint,
            corpus,
            split,
            seed,
            corpus_digest(gallery),
        )
        totals = {name: len(gallery.languages(target)) for name, target in DIRECTIONS.items()}
        with LongWork(often_short=True) as work:
            work.show("encode the corpus", 0)
            encoded = OfflineGallery(_lowered(self._loaded, self._precision), gallery)
            finder = None
            if self._finder:
                finder = OfflineGallery(_lowered(self._finder, self._precision), gallery)
        compute = partial(
            gallery_neighbours,
            encoded,
            gallery,
            source,
            self._k,
            pool_size=self._pool_size,
            retriever=finder,
        )
        if not self._pool_size:
            return compute()
        with query_progress(totals) as show:
            return compute(on_query=show)


def _lowered(checkpoint: Checkpoint, precision: Precision) -> Checkpoint:
    return replace(checkpoint, model=lowered(checkpoint.model, precision))
