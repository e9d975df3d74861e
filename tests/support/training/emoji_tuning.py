"""The first emoji, an untrained checkpoint that knows their names, and a recipe of a moment."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tandem.corpus.emoji import emoji_records
from tandem.corpus.records import Record
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.lab.training.recipes.named_recipes import finetune
from tandem.lab.training.recipes.recipe import JointRecipe
from tandem.lab.training.sources.record_source import RecordSource
from tandem.lab.training.starting_model import as_trained
from tandem.lab.training.train import RunEnd, train
from tandem.modeling.checkpoint import save_checkpoint
from tests.support.modeling.tiny_checkpoint import tiny_model

# In fp32, for a CPU without bf16 takes five times as long to emulate it.
RECIPE = replace(
    finetune("emoji", round_count=12),
    precision="fp32",
    be_batch_size=8,
    ce_family_count=8,
    ce_steps_per_round=1,
    dev_family_count=10,
    dev_every_round_count=4,
)


def train_further(
    recipe: JointRecipe,
    init: Path,
    train_records: Iterable[Record],
    dev_records: Iterable[Record],
    folder: Path,
    **options: object,
) -> RunEnd:
    options.setdefault("progress", lambda *_: None)
    return train(
        as_trained(recipe, init),
        RecordSource(train_records, dev_records),
        folder,
        init=init,
        **options,  # type: ignore[arg-type]
    )


def records(split: str, count: int) -> list[Record]:
    """Returns the first emoji of a split, with their names alone: keywords can be too long."""
    found = islice(emoji_records(split), count)  # type: ignore[arg-type]
    return [
        replace(each, captions=tuple(c for c in each.captions if c.caption_id.endswith("-name")))
        for each in found
    ]


def save_untrained(folder: Path) -> None:
    everything = records("train", 100) + records("val", 60)
    texts = [caption.text for each in everything for caption in each.captions]
    tokenizer = train_tokenizer(texts, 800)
    model = tiny_model(vocabulary_size=tokenizer.get_vocab_size(), image_size=48)
    save_checkpoint(folder, model, tokenizer, {})
