"""Measures checkpoints in this process. It imports torch, so import it late."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.evaluate.neighbour_measure import NeighbourMeasure
from tandem.cli.models.any_checkpoint import (
    AnyCheckpoint,
    check_embeds,
    fingerprint_of,
    in_precision,
    load_any_checkpoint,
    texts_of,
    trained_on,
)
from tandem.cli.neighbours.neighbour_gallery import CorpusPart
from tandem.cli.terminal.console import errors
from tandem.cli.terminal.progress import query_progress
from tandem.corpus.readable_records import (
    ModelCheck,
    RecordCheck,
    check_captions,
    picture_pixels,
)
from tandem.corpus.records import Record
from tandem.lab.evaluation.gallery import DIRECTIONS, Gallery, GalleryDigest
from tandem.lab.evaluation.offline_report import offline_report
from tandem.lab.evaluation.reports.checkpoint_origin import origin_about
from tandem.lab.evaluation.reports.report import NO_CROSS_ENCODER, Report
from tandem.model_io.repository.precision import Precision
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.image_sources.region_tokens import RegionFile

_TRAINED: Final = "asking pictures that were trained on"


class OfflineMeasure:
    """A checkpoint, and optionally a second one that retrieves for it."""

    def __init__(self, folder: Path, asked: EvaluateOptions) -> None:
        """Loads the checkpoints; reads the regions instead of pixels if that file is given.

        Raises RegionFileInvalid, and ValueError for a folder that is not a checkpoint, that has no
        cross-encoder for the other options, and as NeighbourMeasure.of does.
        """
        self._asked = asked
        self._part = CorpusPart(asked.corpus, asked.split, asked.seed)
        self._images = RegionFile(asked.regions) if asked.regions else None
        self._precision = asked.precision or Precision.FP32
        self._checkpoint, origin = _load(folder, self._precision)
        self._retriever: AnyCheckpoint | None = None
        self._about: dict[str, Any] = {"checkpoint": _described(folder, self._checkpoint), **origin}
        self._pool_sizes = asked.pool_sizes
        if not self._checkpoint.model.config.has_cross_encoder:
            self._pool_sizes = []
            if asked.retriever or asked.fusion:
                raise ValueError(
                    f"{folder} has no cross-encoder: leave out --retriever and --fusion-k"
                )
            errors.print(NO_CROSS_ENCODER)
            self._about["cross-encoder"] = "none"
        if asked.retriever:
            self._retriever, origin = _load(asked.retriever, self._precision)
            self._about["retriever"] = _described(asked.retriever, self._retriever)
            self._about |= {f"retriever {name}": value for name, value in origin.items()}
        check_embeds(asked.retriever or folder, self._retriever or self._checkpoint)
        self._neighbours: NeighbourMeasure | None = None
        if asked.neighbours:
            self._neighbours = NeighbourMeasure.of(
                asked.neighbours,
                asked.neighbours_dev,
                fingerprint_of(self._retriever or self._checkpoint, self._precision),
                self._pool_sizes,
                self._part,
                allows_trained=asked.allow_trained,
            )
            about = self._neighbours.about
            self._about |= {f"neighbours {name}": value for name, value in about.items()}

    @property
    def check(self) -> RecordCheck:
        """Returns the check that a record must pass to be encoded.

        If another checkpoint retrieves, both must be able to read the captions. A record may lack
        captions, because a distractor needs none.
        """
        texts = texts_of(self._checkpoint, self._asked.truncation_policy)
        pixels = partial(picture_pixels, rules=self._checkpoint.model.config.image_rules)
        content = self._images.content if self._images else pixels
        check = ModelCheck(content, texts, needs_caption=False)
        if self._retriever is None:
            return check
        return partial(_check_both, texts_of(self._retriever, self._asked.truncation_policy), check)

    def origin(self, digest: GalleryDigest) -> dict[str, str]:
        """Returns how many of the asking pictures were trained on, for the report.

        Raises ValueError if any were, unless that is allowed: their recall would say nothing about
        other pictures.
        """
        names = trained_on(
            [self._checkpoint, *([self._retriever] if self._retriever else [])],
            digest,
            self._part,
            "evaluate on another split",
            allows_trained=self._asked.allow_trained,
        )
        if names is None or not digest.pictures:
            return {_TRAINED: "not recorded"}
        return {_TRAINED: f"{len(names):,} of {len(digest.pictures):,}"}

    def measure(self, gallery: Gallery, about: Mapping[str, Any]) -> Report:
        """Returns the report of a gallery; without a cross-encoder, of the bi-encoder's order."""
        totals = {name: len(gallery.languages(target)) for name, target in DIRECTIONS.items()}
        made_by = self._about | {"precision": self._precision}
        if self._asked.fusion:
            made_by["fusion"] = f"over pools of {self._asked.fusion}"
        with query_progress(totals) as show:
            return offline_report(
                self._checkpoint,
                gallery,
                self._pool_sizes,
                {**about, **made_by, "title": f"{about['title']}, {self._precision}"},
                retriever=self._retriever,
                images=self._images,
                fusion_pool_size=self._asked.fusion,
                on_query=show,
                **({"reorder": self._neighbours.reorder(gallery)} if self._neighbours else {}),
            )


def _check_both(retriever_texts: TextPreprocessor, check: RecordCheck, record: Record) -> None:
    check_captions(record, retriever_texts, needs_caption=False)
    check(record)


def _load(folder: Path, precision: Precision) -> tuple[AnyCheckpoint, dict[str, str]]:
    """Returns the checkpoint in that precision, and the description of it before."""
    loaded = load_any_checkpoint(folder)
    origin = origin_about(loaded.model, loaded.model.config, loaded.training)
    # As in a server of this checkpoint, and in lists of its neighbours.
    origin["model"] = fingerprint_of(loaded, precision)
    return in_precision(loaded, precision), origin


def _described(folder: Path, checkpoint: AnyCheckpoint) -> str:
    recipe = checkpoint.training.get("recipe", {})
    made = f", recipe {recipe['name']} seed {recipe['seed']}" if recipe else ""
    return f"{folder.name}, weights {checkpoint.weights_sha256[:12]}{made}"
