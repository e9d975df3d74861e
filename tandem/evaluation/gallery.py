"""What an evaluation searches and what it asks: pictures with captions, all of them both ways."""

import random
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import pairwise
from statistics import fmean

from tandem.contract.content import Modality
from tandem.contract.identifiers import check_item_id
from tandem.corpus.records import Caption, Record
from tandem.errors import ItemIdInvalid
from tandem.model_io.visible_text import folded_text

# What each direction looks for.
DIRECTIONS = {"text→image": Modality.IMAGE, "image→text": Modality.TEXT}


@dataclass(frozen=True, slots=True)
class EvaluationQuery:
    """A query and the items that answer it."""

    query: str | bytes
    target_modality: Modality
    answer_ids: frozenset[str]
    language: str
    """Of the caption that is asked with or looked for."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """Records with the captions chosen for each, and how many of the records ask.

    A family's captions are all in one language, so that a caption's siblings stay its hardest
    rivals; families take turns through the languages.
    """

    chosen: tuple[tuple[Record, tuple[Caption, ...]], ...]
    asking_count: int
    """The first so many ask; those behind them only stand in the way, as distractors."""
    any_match: bool = False
    """Whether all that a query is true of answers it (`matches`), and not its own alone."""
    pairs: tuple[tuple[Record, Caption], ...] = field(init=False)
    """Every caption with its record, in the order of the records."""
    item_ids: Mapping[Modality, Sequence[str]] = field(init=False)
    """Of the pictures, in the order of the records, and of the captions, in that of `pairs`.

    They begin with a digest, because equally similar items stand in the order of their ids: by the
    names of the records, those that ask would stand before all distractors that say the same. And
    no two are equal, though distractors may have the names of records that ask, or of each other.
    """

    def __post_init__(self) -> None:
        pairs, image_ids, text_ids = [], [], []
        seen: Counter[tuple[str, Modality, str]] = Counter()

        def item_id(number: int, modality: Modality, name: str) -> str:
            place = "asking" if self.asks(number) else "distractor"
            # Distractors of two corpora may have one name.
            seen[place, modality, name] += 1
            again = seen[place, modality, name]
            return _item_id(place if again == 1 else f"{place} {again}", modality, name)

        for number, (record, captions) in enumerate(self.chosen):
            image_ids.append(item_id(number, Modality.IMAGE, record.record_id))
            text_ids += [item_id(number, Modality.TEXT, each.caption_id) for each in captions]
            pairs += [(record, each) for each in captions]
        object.__setattr__(self, "pairs", tuple(pairs))
        object.__setattr__(self, "item_ids", {Modality.IMAGE: image_ids, Modality.TEXT: text_ids})

    @property
    def records(self) -> tuple[Record, ...]:
        """The pictures."""
        return tuple(record for record, _ in self.chosen)

    def asks(self, number: int) -> bool:
        """Returns whether the record of that number asks."""
        return number < self.asking_count

    def items(self) -> Iterator[tuple[str, str | bytes]]:
        """Yields every item to ingest: all pictures, then all captions."""
        for item_id, record in zip(self.item_ids[Modality.IMAGE], self.records, strict=True):
            yield item_id, record.image.read()
        for item_id, (_, caption) in zip(self.item_ids[Modality.TEXT], self.pairs, strict=True):
            yield item_id, caption.text

    def queries(
        self, target: Modality, numbers: Iterable[int] | None = None
    ) -> Iterator[EvaluationQuery]:
        """Yields the queries that look for items of the `target` modality, in the records' order.

        A caption looks for its picture, a picture for any of its captions. `numbers` takes those
        alone, and no picture of another is read.
        """
        ids, languages, answers = (
            self.item_ids[target],
            self.languages(target),
            self.answers(target),
        )
        for number in range(len(languages)) if numbers is None else numbers:
            query: str | bytes
            if target is Modality.TEXT:
                query = self.chosen[number][0].image.read()
            else:
                query = self.pairs[number][1].text
            answer_ids = frozenset(ids[answer] for answer in answers[number])
            yield EvaluationQuery(query, target, answer_ids, languages[number])

    def languages(self, target: Modality) -> list[str]:
        """Returns the language of each query, without reading a picture."""
        asking = self.chosen[: self.asking_count]
        if target is Modality.TEXT:
            return [captions[0].language for _, captions in asking]
        return [caption.language for _, captions in asking for caption in captions]

    def query_pictures(self, target: Modality) -> tuple[int, ...]:
        """Returns which picture each query is of, by number; nothing where each is of its own."""
        asking = enumerate(self.chosen[: self.asking_count])
        pictures = [number for number, (_, captions) in asking for _ in captions]
        shares = target is Modality.IMAGE and len(set(pictures)) < len(pictures)
        return tuple(pictures) if shares else ()

    def answers(self, target: Modality) -> list[set[int]]:
        """Returns each query's answers, by their number among the items of the target modality."""
        if self.any_match:
            return self.matches(target)
        if target is Modality.IMAGE:
            asking = enumerate(self.chosen[: self.asking_count])
            return [{number} for number, (_, captions) in asking for _ in captions]
        starts = [0]
        for _, captions in self.chosen:
            starts.append(starts[-1] + len(captions))
        return [set(range(starts[n], starts[n + 1])) for n in range(self.asking_count)]

    def matches(self, target: Modality) -> list[set[int]]:
        """Returns what each query is true of, numbered as in `answers`: its answers and more.

        More is what shares a caption as it is read: of two pictures of two dogs, each is only one
        caption's answer, but both match both. A recall counts answers, which are these where
        `any_match` is true; a probability counts matches.
        """
        numbers: dict[str, set[int]] = {}
        if target is Modality.IMAGE:
            for number, (record, _) in enumerate(self.chosen):
                for said in record.captions:
                    numbers.setdefault(folded_text(said.text), set()).add(number)
            asked = self.pairs[: len(self.languages(target))]
            return [numbers[folded_text(caption.text)] for _, caption in asked]
        for number, (_, caption) in enumerate(self.pairs):
            numbers.setdefault(folded_text(caption.text), set()).add(number)
        return [
            set().union(*(numbers.get(folded_text(said.text), ()) for said in record.captions))
            for record, _ in self.chosen[: self.asking_count]
        ]

    def asked(self, target: Modality, query_count: int | None = None) -> Sequence[int]:
        """Returns the numbers of so many queries, one from each part of the gallery; None is all.

        Each by chance, and the same at every run: every n-th would meet one language alone where
        languages take turns in n.
        """
        total = len(self.languages(target))
        if query_count is None or query_count >= total:
            return range(total)
        rng = random.Random(f"{total}/{query_count}")
        bounds = [number * total // query_count for number in range(query_count + 1)]
        return [rng.randrange(start, end) for start, end in pairwise(bounds)]

    def best_recall_at_1(self, target: Modality, numbers: Iterable[int] | None = None) -> float:
        """Returns the R@1, in percent, that is expected of one that reads without a fault.

        Of the queries of those numbers, or of all.

        What shares a caption word by word, nobody can tell apart: a query that is true of four
        items, one of them its answer, is answered first once in four times. The more distractors,
        the more of that.
        """
        answered = zip(self.answers(target), self.matches(target), strict=True)
        shares = [len(answers) / len(matches) for answers, matches in answered]
        return 100 * fmean(shares if numbers is None else [shares[number] for number in numbers])

    def tie_order(self, target: Modality) -> list[int]:
        """Returns the items of the target modality, by number, as equally similar ones stand."""
        ids = self.item_ids[target]
        return sorted(range(len(ids)), key=ids.__getitem__)

    def only(self, numbers: Container[int]) -> "Gallery":
        """Returns the gallery less all records but those, by their numbers."""
        kept = [(number, each) for number, each in enumerate(self.chosen) if number in numbers]
        asking_count = sum(self.asks(number) for number, _ in kept)
        return replace(self, chosen=tuple(each for _, each in kept), asking_count=asking_count)


def _item_id(place: str, modality: Modality, name: str) -> str:
    digest = sha256(f"{place}/{modality}/{name}".encode(errors="surrogatepass")).hexdigest()
    try:
        return check_item_id(f"{digest[:8]}-{name}")
    except ItemIdInvalid:  # a path as a name may be too long for a server; the digest will do
        return digest


def make_gallery(
    records: Iterable[Record],
    languages: Sequence[str],
    captions_per_picture: int = 1,
    distractors: Iterable[Record] = (),
    *,
    any_match: bool = False,
) -> Gallery:
    """Returns a gallery of the records and, behind them, of `distractors`, which ask nothing.

    A picture comes with its first `captions_per_picture` captions of its family's language, or as
    many as it has. `any_match` is the gallery's. Raises ValueError if a picture has captions,
    and none in its family's language.
    """
    asking, behind = list(records), list(distractors)
    # A distractor's family may have the name of one that asks, and is another.
    number_of_family: dict[tuple[bool, str], int] = {}
    chosen = []
    for place, record in enumerate(asking + behind):
        family = (place < len(asking), record.family)
        number = number_of_family.setdefault(family, len(number_of_family))
        language = languages[number % len(languages)]
        captions = tuple(each for each in record.captions if each.language == language)
        if record.captions and not captions:
            raise ValueError(f"{record.record_id} has no caption in {language!r}")
        chosen.append((record, captions[:captions_per_picture]))
    return Gallery(tuple(chosen), len(asking), any_match)


def languages_of(records: Sequence[Record]) -> list[str]:
    """Returns the languages that every record with captions has one in, in the first's order.

    Raises ValueError if there is none.
    """
    captioned = [record.captions for record in records if record.captions]
    languages = [{each.language for each in captions} for captions in captioned]
    shared = set.intersection(*languages) if languages else set()
    if not shared:
        raise ValueError("no language has a caption for every picture; evaluate one by one")
    ordered = dict.fromkeys(caption.language for caption in captioned[0])
    return [language for language in ordered if language in shared]


def folds(records: Sequence[Record], fold_count: int) -> list[Sequence[Record]]:
    """Returns the records as `fold_count` galleries of the same size, in their order.

    The protocol of COCO's "1k": each fold is searched alone and recalls are averaged over them,
    which is not comparable with one gallery of all (methods 7). Raises ValueError if they do not
    divide, or if a family would be cut: what is left of it would be easier than it claims.
    """
    if len(records) % fold_count:
        raise ValueError(f"{len(records)} records do not divide into {fold_count} folds")
    size = len(records) // fold_count
    for start in range(size, len(records), size):
        if records[start - 1].family == records[start].family:
            raise ValueError(
                f"folds of {size} records cut the family {records[start].family!r} in two; "
                "take another number of folds"
            )
    return [records[start : start + size] for start in range(0, len(records), size)]
