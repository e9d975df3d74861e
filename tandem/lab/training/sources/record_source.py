"""Reads the records that a run trains on: emoji, or a corpus on disk.

Image tokens come from pixels or from a detector's file of regions.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray
from tokenizers import Tokenizer

from tandem.corpus.readable_records import (
    ModelCheck,
    SkippedRecords,
    picture_bytes,
    picture_pixels,
    readable_records,
)
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Record
from tandem.lab.training.data.batches import RuledTexts, Splitter
from tandem.lab.training.data.pair_pool import check_family_count
from tandem.lab.training.data.pooled_images import ReadImages
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs.run import NOTE_STAGE, Progress, Run
from tandem.lab.training.sources.frozen_pictures import FrozenPictures
from tandem.lab.training.sources.record_pairs import RecordPairs
from tandem.lab.training.sources.source import Pictures, PixelPictures, TrainingData
from tandem.lab.training.stages.backbone_lessons import BackboneLesson, PairLesson
from tandem.model_io.pictures.image_rules import ImageRules, PictureRules
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.region_sources import open_region_source
from tandem.modeling.image_sources.region_tokens import RegionFile
from tandem.modeling.joint_model import JointModel
from tandem.modeling.trained_pictures import TrainedPictures

_FROZEN: Final = ("efficientnet_lite0", "efficientnet_lite0_early", "vision_tower")
"""Image sources that do not learn unless a run has steps for them."""

ReadRecords = Callable[[Iterable[Record], ModelCheck], Iterable[Record]]
"""Yields those of a corpus' records that a model can read, by its check."""


class RecordSource:
    """Gives records of any corpus, whose siblings may share captions."""

    def __init__(
        self,
        train_records: Iterable[Record],
        dev_records: Iterable[Record],
        *,
        regions: Path | None = None,
        features: Path | None = None,
        default_features: Path | None = None,
        read: ReadRecords = lambda records, check: readable_records(
            records, check, SkippedRecords()
        ),
        skipped: SkippedRecords | None = None,
    ) -> None:
        """`regions`: the file to read instead of pixels. `skipped`: where `read` counts.

        `features`: folder where tokens of frozen networks are kept, refused for a network that
        learns; by default `default_features`, which is not.
        """
        self._features, self._default_features = features, default_features
        self._train_records, self._dev_records = train_records, dev_records
        self._candidates: list[Record] | None = None
        self._regions, self._read, self._skipped = regions, read, skipped

    def shaped(self, recipe: Recipe) -> Recipe:
        """Returns the recipe with the digest of the file of regions, where there is one."""
        if recipe.image_source == "regions" and self._regions is None:
            raise ValueError(
                "image_source regions reads a detector's file, and none is given; give it with "
                "--regions, or take another image source"
            )
        if self._regions is None:
            return recipe
        if recipe.image_source != "regions":
            raise ValueError(
                f"{self._regions} would be ignored: image tokens are of {recipe.image_source}; "
                "leave --regions out, or take the image source regions"
            )
        return replace(recipe, regions_sha256=_regions_sha256(self._regions))

    def texts(self, recipe: Recipe) -> Iterable[str]:
        """Yields every caption of the training split that is whole Unicode.

        Reading a record reports a lone surrogate, by the record's name, once there is a tokenizer.
        """
        texts = (caption.text for record in self._train() for caption in record.captions)
        return (
            text for text in texts if not any("\ud800" <= letter <= "\udfff" for letter in text)
        )

    def read(
        self,
        recipe: Recipe,
        config: JointConfig | PictureRules,
        tokenizer: Splitter,
        progress: Progress,
    ) -> TrainingData:
        """Returns the records that the model can read.

        Dev is one record of each of the first `recipe.dev_family_count` families, so that a text
        has one right image. Raises RecordUnreadable, naming the record.
        """
        is_frozen = recipe.image_source in _FROZEN and not recipe.learns_backbone
        if self._features and (self._regions or not is_frozen):
            raise ValueError(
                f"--features {self._features} would be ignored: only tokens of a published network "
                f"that learns nothing are kept, not those of {recipe.image_source}; leave it out"
            )
        kept_in = self._features or self._default_features
        check = self._check(config, tokenizer)

        def readable(candidates: Sequence[Record], stage: str) -> list[Record]:
            read = self._read(candidates, check)
            return list(_reported(read, stage, len(candidates), progress))

        candidates = self._train()
        records = readable(candidates, "train pictures read")
        if recipe.holds_out:
            records, held_out = divided(records, recipe)
        else:
            held_out = readable(list(self._dev_records), "dev pictures read")
        dev_records, dev_captions = _dev_pairs(held_out, recipe)
        pairs = RecordPairs(records)
        check_family_count(pairs, recipe.batch_family_counts)

        def pictures_of(some: Sequence[Record], view_count: int) -> Pictures:
            if self._regions or not isinstance(config, JointConfig):
                return ReadImages(check.content, some)
            if kept_in and is_frozen:
                return FrozenPictures(
                    some, check.content, config, kept_in, view_count, recipe.view_stretch
                )
            if view_count > 1:
                raise ValueError(
                    f"view_count is {view_count}, and only tokens that are kept have views: name a "
                    "folder with --features, and a frozen image source"
                )
            return PixelPictures(len(some), lambda number: check.content(some[number]))

        def lesson(model: JointModel, tokenizer: Tokenizer, run: Run) -> BackboneLesson:
            return PairLesson(
                model, pairs, lambda number: check.content(records[number]), tokenizer, run
            )

        picture_sha256s: list[bytes] = []
        corpus_sha256 = records_sha256(
            records,
            dev_records,
            reads_pictures=not self._regions,
            on_picture=picture_sha256s.append,
        )
        if not self._regions:
            for note in _repeated(pairs, picture_sha256s):
                progress(NOTE_STAGE, 0, 0, note)
        return TrainingData(
            recipe=replace(
                recipe, pool_family_count=len(pairs.families), corpus_sha256=corpus_sha256
            ),
            pairs=pairs,
            train=pictures_of(records, recipe.view_count),
            dev=pictures_of(dev_records, 1),
            dev_captions=dev_captions,
            lesson=lesson,
            skipped_counts=self._skipped.all_counts if self._skipped else {},
            # The training pictures come first; those of dev only pick the checkpoint.
            trained_pictures=(
                None if self._regions else TrainedPictures.of(picture_sha256s[: len(records)])
            ),
        )

    def _check(self, config: JointConfig | PictureRules, tokenizer: Splitter) -> ModelCheck:
        """Returns what checks that the model can read a record, and reads it."""
        if isinstance(tokenizer, RuledTexts):
            assert not isinstance(config, JointConfig), "a published model's"
            return ModelCheck(content_reader(config, self._regions), tokenizer.preprocessor)
        assert isinstance(config, JointConfig), "models that Tandem defines have a JointConfig"
        texts = TextPreprocessor(tokenizer, config.max_text_tokens)
        if self._regions:
            return ModelCheck(RegionFile(self._regions).content, texts)
        return ModelCheck(partial(picture_pixels, rules=config.image_rules), texts)

    def _train(self) -> list[Record]:
        if self._candidates is None:
            self._candidates = list(self._train_records)
        return self._candidates


def content_reader(rules: PictureRules, regions: Path | None) -> Callable[[Record], NDArray[Any]]:
    """Returns what reads a record for a published model: pixels, or vectors of its regions.

    Raises ValueError unless `regions`, a detector's file, are given to a model of them.
    """
    if isinstance(rules, ImageRules):
        if regions is not None:
            raise ValueError(f"--regions {regions} would be ignored: the model reads pixels")
        return partial(picture_pixels, rules=rules)
    if regions is None:
        raise ValueError(f"the model reads {rules} of a detector; give them with --regions")
    return partial(RecordRegions(open_region_source(regions)).vectors, rules=rules)


def _regions_sha256(path: Path) -> str:
    """Returns the digest of a file, or of those of a folder in the order of their names."""
    if path.is_dir():
        inner = [_regions_sha256(each) for each in sorted(path.iterdir())]
        return sha256("".join(inner).encode()).hexdigest()
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def records_sha256(
    *parts: Iterable[Record],
    reads_pictures: bool = True,
    on_picture: Callable[[bytes], object] = lambda _: None,
) -> str:
    """Returns a digest of the records in their order, part by part.

    It covers ids, families, captions and, with `reads_pictures`, the bytes of the picture files,
    which are read again; `on_picture` is called with the SHA-256 of each, in order. Raises
    RecordUnreadable for a picture that is not available.
    """
    digest = sha256()
    for part in parts:
        for record in part:
            captions = [(each.language, each.text) for each in record.captions]
            # As JSON, so that different captions cannot concatenate to the same text.
            line = json.dumps([record.record_id, record.family, captions])
            picture = b""
            if reads_pictures:
                picture = sha256(picture_bytes(record)).digest()
                on_picture(picture)
            digest.update(f"{line} {picture.hex()}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _repeated(pairs: RecordPairs, picture_sha256s: Sequence[bytes]) -> Iterator[str]:
    """Yields what to know of picture files that are read twice; those of train come first."""
    families_of: dict[bytes, set[int]] = defaultdict(set)
    for number, members in enumerate(pairs.families):
        for member in members:
            families_of[picture_sha256s[member]].add(number)
    learned = picture_sha256s[: sum(map(len, pairs.families))]
    dev = picture_sha256s[len(learned) :]
    if count := sum(len(families_of[each]) > 1 for each in learned):
        yield (
            f"{count:,} of {len(learned):,} train pictures have another family's file, so that the "
            "captions of each count as wrong for the other; give a picture one record with all of "
            "its captions, or one family"
        )
    if count := sum(each in families_of for each in dev):
        yield (
            f"{count:,} of {len(dev):,} dev pictures are learned from as well, so that dev recall "
            "is higher than for new pictures; keep each file in one split and one family"
        )


def _reported(
    records: Iterable[Record], stage: str, count: int, progress: Progress
) -> Iterator[Record]:
    progress(stage, 0, count, "")
    number = 0
    for number, record in enumerate(records, start=1):
        if number % 100 == 0:
            progress(stage, number, count, "")
        yield record
    progress(stage, number, count, "")


def divided(records: Sequence[Record], recipe: Recipe) -> tuple[list[Record], list[Record]]:
    """Returns the records to train on, and those that the recipe holds out.

    These are families, or one picture each of families that have others. Families that share a
    caption stay together. Raises ValueError where fewer than twice as many such families are there.
    """
    families = RecordPairs(records).families
    rng = random.Random(f"held out/{recipe.seed}")
    if count := recipe.held_out_picture_count:
        families = [family for family in families if len(family) > 1]
        _check_enough(families, count, "families of several pictures", "held_out_picture_count")
        held = {rng.choice(family) for family in rng.sample(families, count)}
    else:
        count = recipe.held_out_family_count
        _check_enough(families, count, "families", "held_out_family_count")
        held = {number for family in rng.sample(families, count) for number in family}
    kept = [record for number, record in enumerate(records) if number not in held]
    return kept, [records[number] for number in sorted(held)]


def _check_enough(families: Sequence[Sequence[int]], count: int, what: str, field: str) -> None:
    if len(families) < 2 * count:
        raise ValueError(
            f"{count} {what} are to be held out of {len(families)}; give more pictures, or hold "
            f"out fewer: --set {field}=N"
        )


def _dev_pairs(records: Sequence[Record], recipe: Recipe) -> tuple[list[Record], list[str]]:
    """Returns one record of each family, and one of its captions."""
    pairs, rng = RecordPairs(records), random.Random(f"dev/{recipe.seed}")
    held_out_count = recipe.held_out_family_count or recipe.held_out_picture_count
    count = held_out_count or recipe.dev_family_count
    numbers = [members[0] for members in pairs.families[:count]]
    if len(numbers) < 2:  # of a single picture every recall is 100
        raise ValueError("dev has fewer than two families; no checkpoint can be picked by that")
    return [records[number] for number in numbers], [
        pairs.caption(number, rng) for number in numbers
    ]
