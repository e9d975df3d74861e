"""Trains on a corpus of one's own: a fresh encoder, or a checkpoint further.

A fresh encoder is random or a published one, as the recipe says; its image tokens are pixels' or a
detector's regions. A checkpoint brings its own shape and tokenizer. Either way the joint encoder
learns in rounds (rounds.py), and its image backbone, where it has one that learns, before them
(image_backbone_tuning.py) or not at all.

Shapes: N records, R image tokens, D width.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tandem.corpus.records import Record
from tandem.model_io.readable_records import ModelCheck, SkippedRecords, TextCheck
from tandem.model_io.special_tokens import special_tokens
from tandem.model_io.text import TextPreprocessor
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.joint_model import JointModel
from tandem.modeling.region_tokens import RegionCheck, RegionFile
from tandem.training.data.batches import tokenize
from tandem.training.data.caption_tokenizer import train_tokenizer
from tandem.training.data.image_tokens import image_tokens
from tandem.training.data.pair_pool import PairPool, check_family_count
from tandem.training.data.pooled_images import HeldImages, PooledImages, RegionImages
from tandem.training.data.record_pairs import RecordPairs
from tandem.training.data.records_digest import records_sha256
from tandem.training.dev_recall import DevRecall, DevSet, dev_recall
from tandem.training.image_backbone_tuning import BACKBONE_STAGE, check_tunable, tune_image_backbone
from tandem.training.processes import ALONE, Processes
from tandem.training.recipes import Recipe
from tandem.training.rounds import train_rounds
from tandem.training.run import Progress, Run, check_init_stays, tell_nobody
from tandem.training.starting_model import in_its_shape, starting_model

_CPU = torch.device("cpu")
_FIRST_QUERY_COUNT = 100
_FIRST_PAIR_COUNT = 2_000

ReadRecords = Callable[[Iterable[Record], TextCheck], Iterable[Record]]
"""Gives of a corpus' records those that a model can read, by its check."""


def _all_records(records: Iterable[Record], _: TextCheck) -> Iterable[Record]:
    return records


@dataclass(frozen=True, slots=True)
class FirstRecall:
    """What is measured before the first round: of a sample of the dev texts, among all pictures."""

    recall: DevRecall
    asked_count: int
    text_count: int

    def __str__(self) -> str:
        if self.asked_count == self.text_count:
            return str(self.recall)
        return f"{self.recall} (of the first {self.asked_count:,} of {self.text_count:,} texts)"


@dataclass(frozen=True, slots=True)
class CorpusRecalls:
    """Dev recalls of what the run began with, and of the best that was kept."""

    before: FirstRecall
    best: DevRecall


def train_on_corpus(
    recipe: Recipe,
    train_records: Iterable[Record],
    dev_records: Iterable[Record],
    folder: Path,
    progress: Progress,
    *,
    init: Path | None = None,
    regions: Path | None = None,
    read: ReadRecords = _all_records,
    skipped: SkippedRecords | None = None,
    resume: bool = False,
    state_every_step_count: int = 50,
    device: torch.device = _CPU,
    processes: Processes = ALONE,
) -> CorpusRecalls:
    """Trains by the recipe on records, keeps the best checkpoint by dev score.

    A recipe that begins trained, or with a trained image backbone, does with `init`, the shipped
    checkpoint unless given. `regions` is the file of them for a model that reads regions. `read`
    is asked once there is a model, for what it can read of either split; what it counts in
    `skipped` the checkpoint tells of. Dev is one record of each of the first
    `recipe.dev_family_count` families, so that a text has one right image. What `folder` gets, and
    what `resume` does, is as with train(). Raises RecordUnreadable, naming the record, ValueError
    for no records, fewer families than a batch takes, regions where pixels are read or pixels where
    regions are, an `init` that lies in `folder`, or a backbone that cannot learn, RegionsInvalid
    for another file, and what train() raises.
    """
    init = init or default_checkpoint()
    if recipe.begins_trained or recipe.begins_with_backbone:
        check_init_stays(init, folder)
    recipe = in_its_shape(recipe, init)
    _check_image_source(recipe, regions)
    region_file = None
    if regions:
        region_file = RegionFile(regions)
        with regions.open("rb") as file:
            recipe = replace(recipe, regions_sha256=file_digest(file, "sha256").hexdigest())
    torch.manual_seed(recipe.seed)
    candidates = list(train_records)
    model, tokenizer = starting_model(recipe, init, lambda: _learn_vocabulary(candidates, recipe))
    tokenizer.encode_special_tokens = True  # a caption that says "[SEP]" means those letters
    config = model.config
    texts = TextPreprocessor(tokenizer, config.max_text_tokens)
    pixel_check = ModelCheck(config.image_size, texts)
    check: TextCheck = RegionCheck(region_file, texts) if region_file else pixel_check
    tells = progress if processes.is_first else tell_nobody
    dev_candidates = list(dev_records)
    records = list(_told(read(candidates, check), "train pictures read", len(candidates), tells))
    dev_candidates = list(
        _told(read(dev_candidates, check), "dev pictures read", len(dev_candidates), tells)
    )
    source = RecordPairs(records)
    tuned_batch_size = recipe.backbone_batch_size if recipe.backbone_step_count else 0
    check_family_count(source, max(recipe.batch_family_count, tuned_batch_size))
    dev_kept, dev_captions = _dev_pairs(dev_candidates, recipe)
    run = Run(
        replace(
            recipe,
            pool_family_count=len(source.families),
            corpus_sha256=records_sha256(records, dev_kept, reads_pictures=not region_file),
        ),
        folder,
        progress,
        state_every=state_every_step_count,
        resume=resume,
        device=device,
        processes=processes,
        skipped_counts=skipped.all_counts if skipped else None,
    )
    if recipe.backbone_step_count:
        check_tunable(model, run)
    model.to(device)
    model.image_backbone.eval().requires_grad_(False)

    def images_of(some: Sequence[Record], stage: str) -> PooledImages:
        if region_file:
            return RegionImages(region_file, some)
        return HeldImages(image_tokens(model.image_backbone, some, pixel_check.pixels, run, stage))

    dev_texts = tokenize(tokenizer, dev_captions, config.max_text_tokens)

    def dev_set(stage: str) -> tuple[DevSet, FirstRecall]:
        images = images_of(dev_kept, f"{stage} tokens")
        dev = DevSet(dev_texts, *images.of(range(len(dev_kept))))
        return dev, _first_recall(model, dev, tokenizer, run, stage)

    dev, before = dev_set("dev")
    begun_with = before
    if recipe.backbone_step_count:
        if not run.goes_on:
            run.progress(BACKBONE_STAGE, 0, recipe.backbone_step_count, f"dev {before}")
        tune_image_backbone(model, source, records, pixel_check.pixels, tokenizer, run)
        dev, begun_with = dev_set("dev with the tuned backbone")
    images = images_of(records, "image tokens")
    pool = PairPool(source, images, tokenizer, config.max_text_tokens)
    if not run.found("encoder"):
        # Else the bar begins further on, and the weights measured may be the state's.
        run.progress("encoder", 0, recipe.round_count, f"dev {begun_with}")
    best = train_rounds(model, pool, dev, tokenizer, run)
    run.end(f"{run.seconds():,.0f} s")
    return CorpusRecalls(before, best)


def as_trained(recipe: Recipe, init: Path) -> Recipe:
    """Returns the recipe as it goes on with a checkpoint as that was trained.

    A BE alone goes on as one, and so does a CE; separate encoders learn in turn, each from its own
    steps. Raises ValueError for a folder that is no checkpoint.
    """
    checkpoint = load_checkpoint(init)
    # Both, where that is not told: a checkpoint made by other means, or two of them combined.
    trained = checkpoint.training.get("recipe", {})
    return replace(
        recipe,
        begins_trained=True,
        be_steps_per_round=recipe.be_steps_per_round if trained.get("be_steps_per_round", 1) else 0,
        ce_steps_per_round=recipe.ce_steps_per_round if trained.get("ce_steps_per_round", 1) else 0,
    )


def _check_image_source(recipe: Recipe, regions: Path | None) -> None:
    if recipe.image_source == "regions" and regions is None:
        raise ValueError(
            "image_source is regions, a detector's, which pictures do not give; give their file "
            "with --regions, or take another image source"
        )
    if recipe.image_source != "regions" and regions is not None:
        raise ValueError(
            f"{regions} would be ignored: image tokens are of {recipe.image_source}; leave "
            "--regions out, or take the image source regions"
        )


def _learn_vocabulary(records: Sequence[Record], recipe: Recipe) -> Tokenizer:
    texts = (caption.text for record in records for caption in record.captions)
    # Half a character is no text; the record's reader says so, by name, once there is a tokenizer.
    whole = (text for text in texts if not any("\ud800" <= letter <= "\udfff" for letter in text))
    return train_tokenizer(whole, recipe.vocabulary_size)


def _first_recall(
    model: JointModel, dev: DevSet, tokenizer: Tokenizer, run: Run, stage: str
) -> FirstRecall:
    """Returns what is found before the first round, by texts whose pairs take no long time.

    A model of six layers reads some hundred pairs a second on two cores: of 500 texts it would be
    minutes before the first step.
    """
    text_count = len(dev.tokens)
    asked = min(text_count, _FIRST_QUERY_COUNT)
    if not run.recipe.trains_be:  # every text is read with every picture
        asked = min(asked, max(10, _FIRST_PAIR_COUNT // text_count))
    measured = f"measure on {stage}, {asked:,} of {text_count:,} texts"
    run.progress(measured, 0, asked, "")
    model.eval()
    with run.compute.autocast():
        recall = dev_recall(
            model,
            run.compute.put(dev),
            special_tokens(tokenizer).cls_id,
            run.recipe,
            asked,
            lambda done: run.progress(measured, done, asked, ""),
        )
    run.progress(measured, asked, asked, "")
    return FirstRecall(recall, asked, text_count)


def _told(
    records: Iterable[Record], stage: str, count: int, progress: Progress
) -> Iterator[Record]:
    """Yields the records, and tells how many have come."""
    progress(stage, 0, count, "")
    number = 0
    for number, record in enumerate(records, start=1):
        if number % 100 == 0:
            progress(stage, number, count, "")
        yield record
    progress(stage, number, count, "")


def _dev_pairs(records: Sequence[Record], recipe: Recipe) -> tuple[list[Record], list[str]]:
    """Returns one record of each family, and one of its captions."""
    if not records:
        raise ValueError("there are no dev records; without them no checkpoint can be picked")
    source, rng = RecordPairs(records), random.Random(f"dev/{recipe.seed}")
    numbers = [members[0] for members in source.families[: recipe.dev_family_count]]
    return [records[number] for number in numbers], [
        source.caption(number, rng) for number in numbers
    ]
