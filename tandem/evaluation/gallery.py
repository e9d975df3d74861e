"""What an evaluation searches and what it asks: pictures with captions, all of them both ways."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tandem.content import Modality
from tandem.corpus.records import Caption, Record

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
    pairs: tuple[tuple[Record, Caption], ...] = field(init=False)
    """Every caption with its record, in the order of the records."""

    def __post_init__(self) -> None:
        pairs = tuple((record, each) for record, captions in self.chosen for each in captions)
        object.__setattr__(self, "pairs", pairs)

    @property
    def records(self) -> tuple[Record, ...]:
        """The pictures."""
        return tuple(record for record, _ in self.chosen)

    def items(self) -> Iterator[tuple[str, str | bytes]]:
        """Yields every item to ingest: all pictures, then all captions."""
        for record, _ in self.chosen:
            yield record.record_id, record.image.read()
        for _, caption in self.pairs:
            yield caption.caption_id, caption.text

    def queries(self, target: Modality) -> Iterator[EvaluationQuery]:
        """Yields the queries that look for items of the `target` modality, in the records' order.

        A caption looks for its picture, a picture for any of its captions.
        """
        for record, captions in self.chosen[: self.asking_count]:
            if target is Modality.TEXT:
                answer_ids = frozenset(caption.caption_id for caption in captions)
                language = captions[0].language
                yield EvaluationQuery(record.image.read(), target, answer_ids, language)
                continue
            for caption in captions:
                answer_ids = frozenset([record.record_id])
                yield EvaluationQuery(caption.text, target, answer_ids, caption.language)

    def languages(self, target: Modality) -> list[str]:
        """Returns the language of each query, without reading a picture."""
        asking = self.chosen[: self.asking_count]
        if target is Modality.TEXT:
            return [captions[0].language for _, captions in asking]
        return [caption.language for _, captions in asking for caption in captions]

    def answers(self, target: Modality) -> list[set[int]]:
        """Returns each query's answers, by their number among the items of the target modality."""
        if target is Modality.IMAGE:
            asking = enumerate(self.chosen[: self.asking_count])
            return [{number} for number, (_, captions) in asking for _ in captions]
        starts = [0]
        for _, captions in self.chosen:
            starts.append(starts[-1] + len(captions))
        return [set(range(starts[n], starts[n + 1])) for n in range(self.asking_count)]

    def matches(self, target: Modality) -> list[set[int]]:
        """Returns what each query is true of, numbered as in `answers`: its answers and more.

        More is what shares a caption word by word: of two pictures of two dogs, each is only one
        caption's answer, but both match both. A recall counts answers, a probability matches.
        """
        numbers: dict[str, set[int]] = {}
        if target is Modality.IMAGE:
            for number, (record, _) in enumerate(self.chosen):
                for said in record.captions:
                    numbers.setdefault(said.text.casefold(), set()).add(number)
            asked = self.pairs[: len(self.languages(target))]
            return [numbers[caption.text.casefold()] for _, caption in asked]
        for number, (_, caption) in enumerate(self.pairs):
            numbers.setdefault(caption.text.casefold(), set()).add(number)
        return [
            set().union(*(numbers.get(said.text.casefold(), ()) for said in record.captions))
            for record, _ in self.chosen[: self.asking_count]
        ]

    def best_recall_at_1(self, target: Modality) -> float:
        """Returns the R@1, in percent, that is expected of one that reads without a fault.

        What shares a caption word by word, nobody can tell apart: a query that is true of four
        items, one of them its answer, is answered first once in four times. The more distractors,
        the more of that.
        """
        answered = zip(self.answers(target), self.matches(target), strict=True)
        shares = [len(answers) / len(matches) for answers, matches in answered]
        return 100 * sum(shares) / len(shares)

    def only(self, record_ids: Container[str]) -> "Gallery":
        """Returns the gallery less all other records."""
        kept = [
            (number, each)
            for number, each in enumerate(self.chosen)
            if each[0].record_id in record_ids
        ]
        asking_count = sum(number < self.asking_count for number, _ in kept)
        return Gallery(tuple(each for _, each in kept), asking_count)


def make_gallery(
    records: Iterable[Record],
    languages: Sequence[str],
    captions_per_picture: int = 1,
    distractors: Iterable[Record] = (),
) -> Gallery:
    """Returns a gallery of the records and, behind them, of `distractors`, which ask nothing.

    A picture comes with its first `captions_per_picture` captions of its family's language, or as
    many as it has. Raises ValueError if one has captions, and none in its family's language.
    """
    asking, behind = list(records), list(distractors)
    number_of_family: dict[str, int] = {}
    chosen = []
    for record in asking + behind:
        number = number_of_family.setdefault(record.family, len(number_of_family))
        language = languages[number % len(languages)]
        captions = tuple(each for each in record.captions if each.language == language)
        if record.captions and not captions:
            raise ValueError(f"{record.record_id} has no caption in {language!r}")
        chosen.append((record, captions[:captions_per_picture]))
    return Gallery(tuple(chosen), len(asking))


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
    divide.
    """
    if len(records) % fold_count:
        raise ValueError(f"{len(records)} records do not divide into {fold_count} folds")
    size = len(records) // fold_count
    return [records[start : start + size] for start in range(0, len(records), size)]
