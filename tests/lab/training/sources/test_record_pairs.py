"""Records as pairs: who shares captions is never a negative, and what is broken is named."""

import io
import random
from dataclasses import dataclass

import pytest
import torch
from PIL import Image

from tandem.corpus.emoji import emoji_records
from tandem.corpus.readable_records import RecordUnreadable
from tandem.corpus.records import Caption, ImageSource, Record
from tandem.lab.training.data.batches import TextBatch
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.data.pooled_images import HeldImages
from tandem.lab.training.sources.record_pairs import RecordPairs
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer


@dataclass(frozen=True)
class Bytes(ImageSource):
    content: bytes

    def read(self) -> bytes:
        return self.content


def png(shade: int = 128) -> Bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, shade, shade)).save(file, "PNG")
    return Bytes(file.getvalue())


def record(
    name: str, *texts: str, family: str | None = None, image: ImageSource | None = None
) -> Record:
    captions = tuple(Caption(f"{name}-{number}", text, "en") for number, text in enumerate(texts))
    return Record(name, captions, "train", family or name, image or png())


def test_families_are_the_corpus_own_and_those_that_share_a_caption() -> None:
    """0 and 2 by family, 1 and 3 by words, 4 and 5 by a chain of both; 6 alone."""
    source = RecordPairs(
        [
            record("0", "a dog", family="x"),
            record("1", "a cat"),
            record("2", "two dogs", family="x"),
            record("3", "an animal", "A cat"),
            record("4", "a kite", family="y"),
            record("5", "a kite", family="z"),
            record("6", "three kites"),
            record("7", "toys", family="z"),
        ]
    )

    assert [list(members) for members in source.families] == [[0, 2], [1, 3], [4, 5, 7], [6]]


def test_no_negative_shares_the_matchs_caption() -> None:
    """400 emoji in five styles: a mismatch's caption stands at no picture of the other's family.

    Positive control: families by the corpus alone would let some through.
    """
    records = [each for _, each in zip(range(400), emoji_records("train"), strict=False)]
    source = RecordPairs(records)
    tokenizer = tiny_tokenizer(tuple(c.text for each in records for c in each.captions))
    numbers = torch.arange(len(records), dtype=torch.float16)
    pool, rng = (
        PairPool(source, HeldImages(numbers[:, None, None]), tokenizer, 200),
        random.Random(0),
    )
    said = [{tuple(tokenizer.encode(c.text).ids) for c in each.captions} for each in records]
    family_of = {n: f for f, members in enumerate(source.families) for n in members}
    kept_image = 0

    for _ in range(20):
        batch = pool.pair_batch(rng, 32, 0.0)

        images = [int(number) for number in batch.tokens[:, 0, 0]]
        ids = _ids(batch.texts)
        assert batch.matches.tolist() == [1.0] * 32 + [0.0] * 32
        for image, text in zip(images[:32], ids[:32], strict=True):
            assert text in said[image]
        for own, image, text in zip(images[:32], images[32:], ids[32:], strict=True):
            assert all(text not in said[n] for n in source.families[family_of[image]])
            kept_image += own == image
    assert abs(kept_image - 320) <= 4 * (640 / 4) ** 0.5

    by_family = {(one.family, ids) for one, own in zip(records, said, strict=True) for ids in own}
    assert len({ids for _, ids in by_family}) < len(by_family)


def test_siblings_are_never_mismatches() -> None:
    """A recipe that asks for them is refused."""
    records = [record(str(n), f"dogs {n}") for n in range(4)]
    pool = PairPool(RecordPairs(records), HeldImages(torch.zeros(4, 1, 1)), tiny_tokenizer(), 64)

    with pytest.raises(ValueError, match="siblings share captions here"):
        pool.pair_batch(random.Random(0), 2, 0.5)


def test_a_record_without_captions_is_named() -> None:
    """There is nothing to pair its picture with."""
    with pytest.raises(RecordUnreadable, match=r"'mute'.*caption empty"):
        RecordPairs([record("said", "two dogs"), record("mute")])


def _ids(batch: TextBatch) -> list[tuple[int, ...]]:
    return [
        tuple(ids[mask.bool()].tolist()) for ids, mask in zip(batch.ids, batch.mask, strict=True)
    ]


def test_groups_for_mining_are_the_families() -> None:
    """So a mined negative is not a sibling either."""
    records = [record(str(n), f"dogs {n}", family=str(n % 3)) for n in range(9)]
    pool = PairPool(RecordPairs(records), HeldImages(torch.zeros(9, 1, 1)), tiny_tokenizer(), 64)

    assert pool.groups().tolist() == [0, 1, 2] * 3
