"""Computes neighbours of corpora for commands. It imports torch, so import it late."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from tandem.cli.models.any_checkpoint import (
    check_embeds,
    fingerprint_of,
    in_precision,
    load_any_checkpoint,
    texts_of,
    trained_on,
)
from tandem.cli.neighbours.neighbour_gallery import BuildOptions, neighbour_gallery
from tandem.cli.terminal.progress import LongWork, query_progress
from tandem.corpus.readable_records import ModelCheck, SkippedRecords, picture_pixels
from tandem.corpus.records import Record
from tandem.lab.evaluation.gallery import DIRECTIONS, Gallery, gallery_digest
from tandem.lab.evaluation.offline import OfflineGallery
from tandem.lab.neighbours.lists.corpus_neighbours import (
    CorpusNeighbours,
    NeighbourSource,
    check_depth,
)
from tandem.lab.neighbours.lists.gallery_neighbours import (
    corpus_digest,
    embedded_neighbours,
    over_pools,
)
from tandem.model_io.repository.precision import Precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.image_sources.region_tokens import RegionFile


class NeighbourBuild:
    """Makes galleries, and computes their neighbours by one checkpoint or two."""

    def __init__(self, asked: BuildOptions, skipped: SkippedRecords) -> None:
        """Loads the checkpoints; reads regions instead of pixels if their file is given.

        Raises ValueError for a folder that is not a checkpoint, where nothing embeds, for pools of
        a model without a cross-encoder, and for a model of regions without their file.
        """
        self._asked, self._skipped = asked, skipped
        self._precision = asked.precision or Precision.FP32
        folder, retriever = asked.checkpoint or default_checkpoint(), asked.retriever
        self._loaded = load_any_checkpoint(folder)
        self._finder = load_any_checkpoint(retriever) if retriever else None
        check_embeds(retriever or folder, self._finder or self._loaded)
        if asked.rerank_k and not self._loaded.model.config.has_cross_encoder:
            raise ValueError(f"{folder} has no cross-encoder to score pools: leave out --rerank-k")
        self._regions = RegionFile(asked.regions) if asked.regions else None
        for name, each in ((folder, self._loaded), (retriever, self._finder)):
            if each and each.model.config.image_source == "regions" and not asked.regions:
                raise ValueError(
                    f"{name} reads a detector's regions, not pixels: give --regions FILE, which "
                    "tandem regions writes"
                )

    def gallery(self, records: Iterable[Record]) -> Gallery:
        """Returns the records whose chosen captions the model can read, as one gallery.

        Raises ValueError where none is left, and for records without a shared language.
        """
        asked = self._asked
        pixels = partial(picture_pixels, rules=self._loaded.model.config.image_rules)
        content = self._regions.content if self._regions else pixels
        check = ModelCheck(content, texts_of(self._loaded))
        gallery = neighbour_gallery(records, asked.language, asked.captions, check, self._skipped)
        if not self._regions:
            return gallery
        return replace(gallery, content_of=lambda record: content(record).tobytes())

    def trained_names(self, gallery: Gallery) -> Sequence[str]:
        """Returns the gallery's pictures that a checkpoint is known to have been trained on.

        Raises ValueError if there are any, unless they are allowed: a model's similarities of its
        own training pictures are better than those of any others, which the lists are used on.
        """
        loaded = [self._loaded, *([self._finder] if self._finder else [])]
        otherwise = "build lists of others: another --split, or of scenes another --seed"
        digest = gallery_digest([gallery], reads_pictures=self._regions is None)
        allows = self._asked.allow_trained
        part = self._asked.part
        return trained_on(loaded, digest, part, otherwise, allows_trained=allows) or ()

    def neighbours(self, gallery: Gallery) -> CorpusNeighbours:
        """Returns the neighbours of each item; raises ValueError for fewer than k items."""
        part, depth, pool_size = self._asked.part, self._asked.k, self._asked.rerank_k
        check_depth(depth, len(gallery.records), len(gallery.pairs))  # before it takes long
        if pool_size > depth:  # from which it is taken
            raise ValueError(f"a pool of {pool_size} exceeds lists of {depth}; take a larger k")
        source = NeighbourSource(
            fingerprint_of(self._finder or self._loaded, self._precision),
            part.corpus,
            part.split,
            part.seed,
            corpus_digest(gallery),
        )
        totals = {name: len(gallery.languages(target)) for name, target in DIRECTIONS.items()}
        with LongWork(often_short=True) as work:
            work.show("encode the corpus", 0)
            scoring = in_precision(self._loaded, self._precision)
            tokens, is_alone = self._regions, self._finder is None
            encoded = OfflineGallery(scoring, gallery, tokens, embeds=is_alone)
            finder = None
            if self._finder:
                finding = in_precision(self._finder, self._precision)
                finder = OfflineGallery(finding, gallery, tokens)
        near = embedded_neighbours(finder or encoded, gallery, source, depth)
        if not pool_size:
            return near
        with query_progress(totals) as show:
            pools = {
                name: encoded.score(target, pool_size, partial(show, name), finder)
                for name, target in DIRECTIONS.items()
            }
        return over_pools(near, gallery, pools, pool_size)
