"""Implements `tandem models calibrate`: fits match probabilities and adaptive depth."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.corpora.corpora import CORPUS_HELP, ON_ERROR, open_corpus, open_divided
from tandem.cli.options import MAX_SEED, with_options
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.progress import query_progress
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readable_records import (
    ModelCheck,
    OnError,
    SkippedRecords,
    picture_pixels,
    readable_records,
)
from tandem.lab.evaluation.calibration.held_out_pools import HeldOutPools
from tandem.lab.evaluation.calibration.model_calibration import (
    FittedCalibration,
    calibration_markdown,
)
from tandem.lab.evaluation.calibration.probability_fit import ProbabilityQuality, fit_probability
from tandem.lab.evaluation.gallery import DIRECTIONS, languages_of, make_gallery
from tandem.lab.evaluation.offline import OfflineGallery
from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    Calibration,
    read_calibrations,
    with_calibration,
    write_calibrations,
)
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.lowered import lowered

_POOL_SIZE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """The options of the command."""

    checkpoint: Annotated[
        Path | None, typer.Argument(help="folder of a checkpoint; by default the bundled one")
    ] = None
    precision: Annotated[Precision | None, "serving precision, as for tandem models add"] = None
    corpus: Annotated[str, typer.Option(help=CORPUS_HELP)] = "scenes"
    dev_split: Annotated[str, "split to fit on"] = "val"
    test_split: Annotated[str, "split to report on"] = "test"
    gallery_count: Annotated[int, typer.Option("--count", help="pictures per split", min=1)] = 2_000
    query_count: Annotated[
        int | None, typer.Option(help="queries per direction; by default the whole gallery", min=1)
    ] = None
    seed: Annotated[int, typer.Option(help="seed of the scenes", min=0, max=MAX_SEED)] = 1
    k: Annotated[int, typer.Option("--rerank-k", help="candidates of a full rerank", min=3)] = (
        _POOL_SIZE
    )
    first_count: Annotated[
        int, typer.Option(help="candidates to score before a rerank may stop", min=2)
    ] = 4
    further_count: Annotated[
        int, typer.Option(help="candidates to score between further stop checks", min=1)
    ] = 4
    lost_points: Annotated[
        float, typer.Option(help="points of R@1 that stopping early may lose on dev", min=0.0)
    ] = 0.2
    on_error: ON_ERROR = OnError.STOP
    report: Annotated[Path | None, "Markdown file for the report"] = None
    write: Annotated[
        bool | None,
        typer.Option(
            "--write/--no-write",
            help="write calibration.json next to the checkpoint; by default yes for a checkpoint "
            "that is named, no for the bundled one",
        ),
    ] = None


@with_options
def calibrate(asked: CalibrateOptions) -> None:
    """Fit match probabilities and the adaptive-depth rule.

    Writes calibration.json next to a named checkpoint, for this precision only; `tandem models add`
    and `tandem up` copy it next to the served model. For the bundled checkpoint the result is only
    printed, unless --write is given.
    """
    if asked.first_count >= asked.k:
        raise ValueError(
            f"first_count {asked.first_count} of {asked.k} candidates leaves nothing to stop; give "
            f"{asked.k - 1} or fewer"
        )
    writes = asked.checkpoint is not None if asked.write is None else asked.write
    if asked.report is not None and not asked.report.resolve().parent.is_dir():
        raise ValueError(f"{asked.report} cannot be written: make its folder first")
    folder, precision = asked.checkpoint or default_checkpoint(), asked.precision
    chosen = precision or native_precision()
    splits, counts = (asked.dev_split, asked.test_split), (asked.gallery_count, asked.gallery_count)
    open_divided(asked.corpus, splits, asked.seed, counts, LeftOut())  # refused early
    loaded = load_checkpoint(folder)
    path = folder / CALIBRATION_NAME
    others = read_calibrations(path)
    fingerprint = export_manifest(loaded.files, chosen, {}).fingerprint
    served = replace(loaded, model=lowered(loaded.model, chosen))
    (dev, dev_texts), (test, test_texts) = (_pools(served, asked, split) for split in splits)
    fitted = FittedCalibration.of(dev, asked.first_count, asked.further_count, asked.lost_points)
    text_similarity = fit_probability(dev_texts) if dev_texts and test_texts else None
    about = {
        "title": f"Calibration of {folder.name} in {chosen}",
        "weights": loaded.weights_sha256[:12],
        "fingerprint": fingerprint[:12],
        "fitted on": _described(asked, asked.dev_split),
        "tested on": _described(asked, asked.test_split),
        "pools": f"{asked.k} candidates",
        "limit": f"{asked.lost_points} points of R@1 lost on dev, by the interval's upper end",
    }
    if text_similarity and test_texts:
        quality = ProbabilityQuality.of(text_similarity, test_texts)
        about["two texts"] = (
            f"probability = sigmoid({text_similarity.scale:.4f} x similarity "
            f"{text_similarity.bias:+.4f}), error at most {quality.highest_error:.4f} on test"
        )
    page = calibration_markdown(fitted, dev, test, about)
    if asked.report is None:
        out.print(page)
    else:
        asked.report.write_text(page, encoding="utf-8", errors="backslashreplace")
        out.print(f"written: {asked.report}")
    if not writes:
        out.print(f"{path} is unchanged; --write adds this calibration in {chosen}")
        return
    calibration = Calibration(
        fingerprint, fitted.probability, fitted.adaptive_depth, text_similarity
    )
    write_calibrations(path, with_calibration(others, calibration))
    out.print(f"{path}: calibrated in {chosen}; tandem models add copies it next to the model")


def _described(asked: CalibrateOptions, split: str) -> str:
    drawn = "" if asked.query_count is None else f", {asked.query_count:,} queries each way"
    gallery = f"gallery of {asked.gallery_count:,}{drawn}"
    return f"{asked.corpus} {split}, {gallery}, seed {asked.seed}"


def _pools(
    checkpoint: Checkpoint, asked: CalibrateOptions, split: str
) -> tuple[Mapping[str, HeldOutPools], HeldOutPools | None]:
    config = checkpoint.model.config
    skipped = SkippedRecords(goes_on=asked.on_error is OnError.SKIP)
    texts = TextPreprocessor(checkpoint.tokenizer, config.max_text_tokens)
    check = ModelCheck(partial(picture_pixels, rules=config.image_rules), texts)
    corpus = open_corpus(asked.corpus, split, asked.seed, asked.gallery_count, skipped)
    records = list(readable_records(corpus, check, skipped))
    for line in skipped.report():
        errors.print(line)
    if len(records) < asked.k:
        # Scenes come in fours.
        enough_count = -(-asked.k // 4) * 4
        raise ValueError(
            f"{split} of {asked.corpus} has {len(records)} pictures, fewer than the {asked.k} "
            f"candidates of a pool: give --count {enough_count} or more, or a smaller --rerank-k"
        )
    gallery = make_gallery(records, languages_of(records))
    encoded = OfflineGallery(checkpoint, gallery)
    numbers = {
        name: gallery.query_numbers(target, asked.query_count)
        for name, target in DIRECTIONS.items()
    }
    pools = {}
    with query_progress({name: len(each) for name, each in numbers.items()}) as show:
        for name, target in DIRECTIONS.items():
            asking = numbers[name]
            scored = encoded.score(target, asked.k, partial(show, name), query_numbers=asking)
            pools[name] = HeldOutPools.of(scored, gallery, target, asking)
    pairs = make_gallery(records, languages_of(records), captions_per_picture=2)
    if len(pairs.pairs) < 2 * len(records):
        return pools, None
    return pools, HeldOutPools.of_texts(OfflineGallery(checkpoint, pairs), pairs, asked.k)
