"""Chooses the records of a corpus whose neighbours a command computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from tandem.corpus.readable_records import (
    OnError,
    RecordCheck,
    SkippedRecords,
    check_asking,
    readable_records,
)
from tandem.corpus.records import Record
from tandem.lab.evaluation.gallery import Gallery, languages_of, make_gallery


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """Names what is read of a corpus."""

    corpus: str
    split: str
    seed: int


def neighbour_gallery(
    records: Iterable[Record],
    language: str | None,
    caption_count: int,
    check: RecordCheck,
    skipped: SkippedRecords,
) -> Gallery:
    """Returns the records whose chosen captions pass the check, as one gallery.

    A record without a caption fails it. Raises ValueError where none is left, and for records
    without a shared language.
    """
    spoken = [
        each
        for each in records
        if language is None or any(caption.language == language for caption in each.captions)
    ]
    if not spoken:
        raise ValueError(f"no record has a caption{f' in {language!r}' if language else ''}")
    languages = [language] if language else languages_of(spoken)
    gallery = make_gallery(spoken, languages, caption_count)
    asking = partial(check_asking, check)
    on_error = OnError.SKIP if skipped.goes_on else OnError.STOP
    readable = {
        number
        for number, (record, chosen) in enumerate(gallery.chosen)
        if any(readable_records([replace(record, captions=chosen)], asking, on_error, skipped))
    }
    if not readable:
        raise ValueError(f"no record is left; {'; '.join(skipped.lines())}")
    return gallery.only(readable)
