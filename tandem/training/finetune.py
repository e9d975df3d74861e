"""Trains a checkpoint further, on a corpus of one's own.

Tokenizer, shape and weights are the checkpoint's; what learns is the joint encoder, in the rounds
by which it was trained (rounds.py): a BE alone goes on as one, and so does a CE. Separate encoders
learn in turn, each from its own steps. The image backbone is frozen, but for the steps before the
rounds that a recipe may give it (image_backbone_tuning.py).

Shapes: N records, R image tokens, D width.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from tandem.corpus.records import Record
from tandem.model_io.readable_records import ModelCheck, SkippedRecords
from tandem.model_io.special_tokens import special_tokens
from tandem.model_io.text import TextPreprocessor
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.image_tokens import NoPixels
from tandem.training.batches import tokenize
from tandem.training.dev_recall import DevRecall, DevSet, dev_recall
from tandem.training.image_backbone_tuning import BACKBONE_STAGE, check_tunable, tune_image_backbone
from tandem.training.image_tokens import image_tokens
from tandem.training.pair_pool import PairPool, check_family_count
from tandem.training.processes import ALONE, Processes
from tandem.training.recipes import Recipe
from tandem.training.record_pairs import RecordPairs
from tandem.training.rounds import train_rounds
from tandem.training.run import Progress, Run, check_init_stays

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Finetuned:
    """Dev recalls of the checkpoint that was begun with, and of the best that was kept."""

    before: DevRecall
    best: DevRecall


def finetune(
    recipe: Recipe,
    checkpoint_folder: Path,
    train_records: Iterable[Record],
    dev_records: Iterable[Record],
    folder: Path,
    progress: Progress,
    *,
    resume: bool = False,
    state_every_step_count: int = 50,
    device: torch.device = _CPU,
    processes: Processes = ALONE,
    skipped: SkippedRecords | None = None,
) -> Finetuned:
    """Trains on records by the recipe, keeps the best checkpoint by dev score.

    The recipe's shape, and whether it trains BE, CE or both, are the checkpoint's, whatever it
    says. Dev is one record of each of the first `recipe.dev_family_count` families, so that a text
    has one right image. `skipped` is where the records' reader counts those that it leaves out, and
    the checkpoint tells of them. What `folder` gets, and what `resume` does, is as with train().
    Raises RecordUnreadable, naming the record, ValueError for no records, fewer families than a
    batch takes, a checkpoint that reads no pixels or lies in `folder`, or a backbone that cannot
    learn, and what train() raises.
    """
    check_init_stays(checkpoint_folder, folder)
    checkpoint = load_checkpoint(checkpoint_folder)
    if isinstance(checkpoint.model.image_backbone, NoPixels):
        raise ValueError(
            f"{checkpoint_folder} reads a detector's regions, which pictures do not give; "
            "begin with a checkpoint of another image source"
        )
    tokenizer, config = checkpoint.tokenizer, checkpoint.model.config
    tokenizer.encode_special_tokens = True  # a caption that says "[SEP]" means those letters
    records, dev_pairs = list(train_records), list(dev_records)
    source = RecordPairs(records)
    run = Run(
        as_checkpoint(recipe, checkpoint, len(source.families)),
        folder,
        progress,
        state_every=state_every_step_count,
        resume=resume,
        device=device,
        processes=processes,
        skipped_counts={str(fault): n for fault, n in skipped.counts.items()} if skipped else None,
    )
    tuned_batch_size = recipe.backbone_batch_size if recipe.backbone_step_count else 0
    check_family_count(source, max(run.recipe.batch_family_count, tuned_batch_size))
    if recipe.backbone_step_count:
        check_tunable(checkpoint.model, run)
    torch.manual_seed(recipe.seed)
    model = checkpoint.model.to(device)
    model.image_backbone.requires_grad_(False)
    check = ModelCheck(config.image_size, TextPreprocessor(tokenizer, config.max_text_tokens))

    dev_kept, dev_captions = _dev_pairs(dev_pairs, recipe)
    dev_texts = tokenize(tokenizer, dev_captions, config.max_text_tokens)
    cls_id = special_tokens(tokenizer).cls_id

    def tokens_of(some: Sequence[Record], stage: str) -> Tensor:
        return image_tokens(model.image_backbone, some, check.pixels, run, stage)

    def dev_set() -> tuple[DevSet, DevRecall]:
        dev = DevSet(dev_texts, tokens_of(dev_kept, "dev tokens"))
        with run.compute.autocast():
            return dev, dev_recall(model, run.compute.put(dev), cls_id, run.recipe)

    dev, before = dev_set()
    begun_with = before
    if recipe.backbone_step_count:
        if not run.goes_on:
            run.progress(BACKBONE_STAGE, 0, recipe.backbone_step_count, f"dev {before}")
        tune_image_backbone(model, source, records, check.pixels, tokenizer, run)
        dev, begun_with = dev_set()
    tokens_NRD = tokens_of(records, "image tokens")
    pool = PairPool(source, tokens_NRD, tokenizer, config.max_text_tokens)
    if not run.found("encoder"):
        # Else the bar begins further on, and the weights measured may be the state's.
        run.progress("encoder", 0, recipe.round_count, f"dev {begun_with}")
    best = train_rounds(model, pool, dev, tokenizer, run)
    run.end(f"{run.seconds():,.0f} s")
    return Finetuned(before, best)


def as_checkpoint(recipe: Recipe, checkpoint: Checkpoint, family_count: int) -> Recipe:
    """Returns the recipe as it trains that checkpoint further, on so many families."""
    config = checkpoint.model.config
    # Both, where that is not told: a checkpoint made by other means, or two of them combined.
    trained = checkpoint.training.get("recipe", {})
    return replace(
        recipe,
        be_steps_per_round=recipe.be_steps_per_round if trained.get("be_steps_per_round", 1) else 0,
        ce_steps_per_round=recipe.ce_steps_per_round if trained.get("ce_steps_per_round", 1) else 0,
        width=config.width,
        layer_count=config.layer_count,
        head_count=config.head_count,
        vocabulary_size=config.vocabulary_size,
        image_source=config.image_source,
        apart_layer_count=config.apart_layer_count,
        pool_family_count=family_count,
        init_weights_sha256=checkpoint.weights_sha256,
    )


def _dev_pairs(records: list[Record], recipe: Recipe) -> tuple[list[Record], list[str]]:
    """Returns one record of each family, and one of its captions."""
    if not records:
        raise ValueError("there are no dev records; without them no checkpoint can be picked")
    source, rng = RecordPairs(records), random.Random(f"dev/{recipe.seed}")
    numbers = [members[0] for members in source.families[: recipe.dev_family_count]]
    return [records[number] for number in numbers], [
        source.caption(number, rng) for number in numbers
    ]
