"""Reads the galleries that an evaluation measures, and describes them for the report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from statistics import fmean
from typing import Final

import typer

from tandem.cli.corpora.corpora import corpus_place, open_corpus
from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.terminal.console import errors
from tandem.contract.content import TruncationPolicy
from tandem.corpus.errors import CorpusError
from tandem.corpus.readable_records import (
    RecordCheck,
    SkippedRecords,
    check_asking,
    readable_records,
)
from tandem.corpus.records import Caption, Record
from tandem.lab.evaluation.gallery import (
    DIRECTIONS,
    Gallery,
    GalleryDigest,
    folds,
    languages_of,
    make_gallery,
)
from tandem.model_io.texts.visible_text import folded_text

BEST: Final = "best expected R@1"
_ANY_MATCH = "all that shares the caption word by word"


@dataclass(frozen=True, slots=True)
class Distractors:
    """The records of one CORPUS:SPLIT:COUNT, none of which asks."""

    name: str
    wanted_count: int
    records: Sequence[Record]

    def __str__(self) -> str:
        """Returns the name, with the number of records where there are fewer than it asks for."""
        count = len(self.records)
        fewer = "" if count == self.wanted_count else f", of which there are {count:,}"
        return f"{self.name}{fewer}"


class Collection:
    """The records that ask, and the distractors."""

    def __init__(self, asked: EvaluateOptions, skipped: SkippedRecords) -> None:
        """Reads the records; raises ValueError for a language that no caption has."""
        self._asked, self._skipped = asked, skipped
        # Scenes come in whole families. Of others, one more record shows if the last is whole.
        count = asked.gallery_count + (asked.corpus != "scenes")
        corpus = open_corpus(asked.corpus, asked.split, asked.seed, count, skipped)
        self.records, self.cut_family = _first_records(corpus, asked.gallery_count)
        self.distractors = [self._distractors(name) for name in asked.distractors or ()]
        if asked.language is not None:
            _check_spoken(self.records, asked.language)

    def galleries(self, check: RecordCheck, show: Callable[[int], None]) -> list[Gallery]:
        """Returns the galleries without unreadable records.

        A distractor is in every gallery, and is read and counted once.
        """
        skipped = self._skipped
        verdicts: dict[tuple[int, tuple[Caption, ...]], bool] = {}
        readable = []
        for gallery in self._whole_galleries():
            kept = set()
            for number, (record, captions) in enumerate(gallery.chosen):
                key = (id(record), captions)
                if key not in verdicts:
                    taken = [replace(record, captions=captions)]
                    whole_check = partial(check_asking, check) if gallery.asks(number) else check
                    show(len(verdicts))
                    found = readable_records(taken, whole_check, skipped)
                    verdicts[key] = any(found)
                if verdicts[key]:
                    kept.add(number)
            rest = gallery.only(kept)
            if not rest.asking_count:
                raise ValueError(f"no record is left to ask with; {'; '.join(skipped.lines())}")
            readable.append(rest)
        return readable

    def about(self, galleries: Sequence[Gallery], digest: GalleryDigest) -> dict[str, object]:
        """Returns the report's lines on the galleries, and prints what a reader should know."""
        asked, first = self._asked, galleries[0]
        title = (
            f"{asked.corpus} {asked.split}, gallery of {first.asking_count:,}, seed {asked.seed}"
        )
        if behind := len(first.chosen) - first.asking_count:
            title += f", {behind:,} distractors"
        if len(galleries) > 1:
            title += f", mean of {len(galleries)} folds"
        repeated_count = sum(_repeated_count(each, digest.pictures) for each in galleries)
        self._print_notes(repeated_count)
        is_truncated = asked.truncation_policy is TruncationPolicy.TRUNCATE
        return {
            "title": title,
            "corpus": asked.corpus,
            "corpus digest": digest.sha256[:16],
            "split": asked.split,
            "seed": asked.seed,
            "galleries": f"{len(galleries)} of {first.asking_count:,} pictures, "
            f"{asked.captions} caption(s) each",
            "language": self._language(),
            "distractors": ", ".join(map(str, self.distractors)) or "none",
            **({"answers": _ANY_MATCH} if asked.any_match else {}),
            **({"last family": f"{self.cut_family}, in part"} if self.cut_family else {}),
            **({"long captions": "truncated"} if is_truncated else {}),
            BEST: _best(galleries, asked.query_count),
            **({"repeated pictures": f"{repeated_count:,}"} if repeated_count else {}),
            "skipped": "; ".join(self._skipped.record_lines()) or "none",
            "passed over": "; ".join(self._skipped.file_lines()) or "none",
        }

    def _whole_galleries(self) -> Iterator[Gallery]:
        asked, language = self._asked, self._asked.language
        records, others = self._spoken(self.records), self._spoken(self._others())
        if not records:
            raise ValueError("the corpus has no records to evaluate on")
        if not any(each.captions for each in records):
            what = "no record has a caption, so there is nothing to search for or to find"
            raise ValueError("; ".join(filter(None, (what, self._skipped.unread_lists()))))
        languages = [language] if language else languages_of([*records, *others])
        for fold in folds(records, asked.fold_count):
            made = make_gallery(fold, languages, asked.captions, others, any_match=asked.any_match)
            yield replace(made, truncation_policy=asked.truncation_policy)

    def _others(self) -> list[Record]:
        return [record for each in self.distractors for record in each.records]

    def _spoken(self, records: Sequence[Record]) -> list[Record]:
        """Returns the records that have a caption in the language, or no caption at all."""
        language = self._asked.language
        return [
            each
            for each in records
            if language is None
            or not each.captions
            or any(caption.language == language for caption in each.captions)
        ]

    def _language(self) -> str:
        language, every = self._asked.language, [*self.records, *self._others()]
        left_out_count = len(every) - len(self._spoken(every))
        if not left_out_count:
            return language or "all in turn"
        return f"{language}, less {left_out_count:,} records that have no caption in it"

    def _distractors(self, name: str) -> Distractors:
        """Returns distractors without those that are queries, whose wrong answers they would be."""
        # From the end, because a corpus's name may contain a colon.
        rest, _, number = name.rpartition(":")
        corpus, _, split = rest.rpartition(":")
        if not corpus or not number.isdecimal():
            raise typer.BadParameter(f"{name!r} is not CORPUS:SPLIT:COUNT, as in scenes:train:4000")
        count, queried = int(number), set()
        # Another seed draws other scenes under the same names.
        if corpus != "scenes" and corpus_place(corpus) == corpus_place(self._asked.corpus):
            queried = {(each.split, each.record_id) for each in self.records}
        seed = self._asked.seed + 1
        others = open_corpus(corpus, split, seed, count + len(queried), self._skipped)
        if others.is_undivided:
            queried = {(split, record_id) for _, record_id in queried}
        found = (each for each in others if (each.split, each.record_id) not in queried)
        return Distractors(name, count, list(islice(found, count)))

    def _print_notes(self, repeated_count: int) -> None:
        if self.cut_family:
            errors.print(
                f"the gallery ends inside the family {self.cut_family}, whose last pictures are "
                "not in it; another --count has it whole"
            )
        for each in self.distractors:
            if len(each.records) < each.wanted_count:
                errors.print(f"{each}: the split has no more records that are no queries")
        if repeated_count:
            errors.print(
                f"{repeated_count:,} pictures have the same file as another of their gallery, so "
                f"that no model can tell which of them answers, which {BEST} does not count; give "
                "a picture one record with all of its captions"
            )


def _first_records(corpus: Iterator[Record], count: int) -> tuple[list[Record], str]:
    """Returns the first `count` records, and the family that this cuts, if any."""
    records = list(islice(corpus, count))
    try:
        following = next(corpus, None)
    except CorpusError:
        return records, ""  # Its fault concerns no query.
    is_cut = following is not None and following.family == records[-1].family
    return records, records[-1].family if is_cut else ""


def _check_spoken(records: Sequence[Record], language: str) -> None:
    """Raises ValueError, naming the languages that there are, if no caption is in this one."""
    there = sorted({caption.language for each in records for caption in each.captions})
    if there and language not in there:
        raise ValueError(
            f"no caption is in {language!r}; the corpus has captions in {', '.join(there)}: name "
            "one of them with --language"
        )


def _repeated_count(gallery: Gallery, pictures: Mapping[str, bytes]) -> int:
    """Returns how many asking pictures have another one's file, and share no caption with it."""
    said_of: dict[bytes, list[set[str]]] = {}
    for record, captions in gallery.chosen[: gallery.asking_count]:
        if record.record_id in pictures:
            said = {folded_text(each.text) for each in captions}
            said_of.setdefault(pictures[record.record_id], []).append(said)
    return sum(len(each) for each in said_of.values() if not set.intersection(*each))


def _best(galleries: Sequence[Gallery], query_count: int | None) -> str:
    """Returns the ceiling in each direction, over the queries of all folds."""
    means = []
    for direction, target in DIRECTIONS.items():
        query_numbers = [gallery.query_numbers(target, query_count) for gallery in galleries]
        each = map(Gallery.best_recall_at_1, galleries, repeat(target), query_numbers)
        means.append(f"{direction} {fmean(each, map(len, query_numbers)):.1f}")
    return ", ".join(means)
