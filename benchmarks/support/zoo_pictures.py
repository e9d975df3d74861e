"""Reads pictures of a corpus for the benchmark of the zoo, as image tokens of a frozen network.

Shapes: N pictures, R image tokens, I their width.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tandem.cli.corpora.corpora import open_corpus
from tandem.corpus.records import Record
from tandem.lab.training.data.batches import ImageTextBatch, tokenize
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.data.pooled_images import HeldImages
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.sources.chosen_captions import FittingCaptions
from tandem.lab.training.sources.record_pairs import RecordPairs
from tandem.lab.training.sources.record_source import RecordSource
from tandem.lab.training.starting_model import in_its_shape
from tandem.lab.training.zoo_training import starting_zoo_model
from tandem.lab.zoo.zoo_model import ZooModel
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.visible_text import folded_text
from tandem.modeling.image_sources.image_tokens import PixelTokens

_BATCH = 32


@dataclass(frozen=True, slots=True)
class PicturePart:
    """Names the first pictures of a split that have a caption in the language."""

    corpus: str
    split: str
    count: int
    language: str

    def records(self) -> list[Record]:
        """Reads them, each with its captions in the language; raises ValueError for none."""
        told = (
            replace(each, captions=said)
            for each in open_corpus(self.corpus, self.split, 1, None)
            if (said := tuple(one for one in each.captions if one.language == self.language))
        )
        if found := list(islice(told, self.count)):
            return found
        raise ValueError(f"{self.corpus} {self.split} has no caption in {self.language!r}")


def pictures_of(
    recipe: Recipe, train: PicturePart, test: PicturePart, init: Path
) -> tuple[ZooModel, PairPool, ImageTextBatch]:
    """Returns the model that gives inputs, the training pictures, and the test pictures.

    A test picture is asked by its first caption; one whose first caption another has too is left
    out, so that a text has one right picture.
    """
    learned, asked = train.records(), list(told_apart(test.records()))
    shaped, source = in_its_shape(recipe, init), RecordSource(learned, asked)
    model, tokenizer = starting_zoo_model(
        shaped, init, lambda: train_tokenizer(source.texts(shaped), shaped.vocabulary_size)
    )
    tokenizer.encode_special_tokens = True  # a caption that says "[SEP]" means those letters
    max_text_tokens = model.config.max_text_tokens
    fitting = FittingCaptions(TextPreprocessor(tokenizer, max_text_tokens))
    learned, asked = list(fitting.of(learned)), list(fitting.of(asked))
    encode = PixelTokens(model.image_backbone, model.config.image_rules)
    images = HeldImages(_tokens(encode, learned))
    pool = PairPool(RecordPairs(learned), images, tokenizer, max_text_tokens)
    return model, pool, _test_set(encode, asked, tokenizer, max_text_tokens)


def told_apart(records: Iterable[Record]) -> Iterator[Record]:
    """Yields the records whose first caption no earlier one has."""
    seen: set[str] = set()
    for record in records:
        said = folded_text(record.captions[0].text)
        if said not in seen:
            yield record
        seen.add(said)


def _tokens(encode: PixelTokens, records: Sequence[Record]) -> torch.Tensor:
    starts = range(0, len(records), _BATCH)
    return torch.cat([encode.of(records[start : start + _BATCH])[0] for start in starts])


def _test_set(
    encode: PixelTokens, records: Sequence[Record], tokenizer: Tokenizer, max_text_tokens: int
) -> ImageTextBatch:
    tokens = _tokens(encode, records)
    captions = [each.captions[0].text for each in records]
    mask = torch.ones(tokens.shape[:2], dtype=torch.int64)
    return ImageTextBatch(tokenize(tokenizer, captions, max_text_tokens), tokens, mask)
