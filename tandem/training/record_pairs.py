"""Records of any corpus as a source of pairs."""

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.records import Record
from tandem.errors import ImageTooLarge, ImageUnreadable, TextEmpty, TextTooLong
from tandem.model_io.image import decode_image
from tandem.model_io.text import TextPreprocessor
from tandem.training.caption_groups import caption_groups


class RecordUnusable(ValueError):
    """A record has a caption or a picture that the model cannot take."""

    def __init__(self, record_id: str, why: str) -> None:
        super().__init__(f"record {record_id!r}: {why}; mend it, or leave it out of the corpus")


class RecordPairs:
    """Records as a source of pairs: a caption may be true of every sibling.

    Its families are the corpus' own, and where two of these share a caption they are one: those
    pictures are never negatives of each other.
    """

    siblings_mismatch = False

    def __init__(self, records: Sequence[Record]) -> None:
        """Raises RecordUnusable for a record without captions."""
        self._captions = [tuple(caption.text for caption in each.captions) for each in records]
        for record, captions in zip(records, self._captions, strict=True):
            if not captions:
                raise RecordUnusable(record.record_id, "it has no caption")
        corpus_families: dict[str, list[int]] = defaultdict(list)
        for number, record in enumerate(records):
            corpus_families[record.family].append(number)
        members: dict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(caption_groups(self._captions, corpus_families.values())):
            members[group].append(number)
        self.families: Sequence[Sequence[int]] = list(members.values())

    def captions(self, number: int) -> Sequence[str]:
        """Returns every caption in every language."""
        return self._captions[number]

    def caption(self, number: int, rng: random.Random) -> str:
        """Returns a caption, all alike in chance."""
        return rng.choice(self._captions[number])


def record_pixels(record: Record, texts: TextPreprocessor, size: int) -> NDArray[np.uint8]:
    """Returns a record's picture, uint8 [size, size, 3], if the model can take its captions too.

    Raises RecordUnusable, naming the record, for a picture that is missing, broken or too large,
    and for a caption that is empty or longer than the model reads.
    """
    for caption in record.captions:
        try:
            texts.token_ids(caption.text)
        except (TextEmpty, TextTooLong) as error:
            why = f"caption {caption.caption_id!r}: {error.message}"
            raise RecordUnusable(record.record_id, why) from error
    try:
        return decode_image(record.image.read(), size)
    except (ImageTooLarge, ImageUnreadable) as error:
        raise RecordUnusable(record.record_id, error.message) from error
    except OSError as error:
        raise RecordUnusable(record.record_id, f"its picture cannot be read: {error}") from error
