"""Builds galleries: the pictures and captions that an evaluation searches, and its queries."""

import json
import random
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import pairwise
from statistics import fmean

from tandem.contract.content import Modality, TruncationPolicy
from tandem.contract.identifiers import check_item_id
from tandem.contract.regions import RegionContent
from tandem.contract.search.query import StoredItem
from tandem.corpus.readable_records import picture_bytes
from tandem.corpus.records import Caption, Record
from tandem.errors import ItemIdInvalid
from tandem.model_io.texts.visible_text import folded_text

# The target modality of each direction.
DIRECTIONS = {"text→image": Modality.IMAGE, "image→text": Modality.TEXT}


PictureContent = bytes | RegionContent
"""What is sent for a picture: its file, or a detector's regions."""


def picture_file(record: Record) -> PictureContent:
    return record.image.read()


@dataclass(frozen=True, slots=True)
class EvaluationQuery:
    """Holds a query and the grades of items, of which those above 0 answer it."""

    query: str | PictureContent | StoredItem
    target_modality: Modality
    grades: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Direction:
    """Holds the queries of one direction."""

    name: str
    languages: Sequence[str]
    """Of each query."""
    queries: Callable[[], Iterable[EvaluationQuery]]
    """Makes the queries, one by one, because a picture query reads its picture."""
    pictures: tuple[int, ...] = ()
    """Number of each query's picture; empty if no two share one."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """Holds records with the captions chosen for each, and how many of the records are queries.

    A family's captions are all in one language, so that a caption's siblings stay its hardest
    competitors; families alternate between the languages.
    """

    chosen: tuple[tuple[Record, tuple[Caption, ...]], ...]
    asking_count: int
    """The number of records that are queries; the records after them are distractors."""
    any_match: bool = False
    """Whether every match of a query answers it, and not only its own item."""
    content_of: Callable[[Record], PictureContent] = picture_file
    """Gives what is sent for a record's picture."""
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR
    """What to do with a caption over the model's limit, as an item and as a query."""
    pairs: tuple[tuple[Record, Caption], ...] = field(init=False)
    """Every caption with its record, in the order of the records."""
    item_ids: Mapping[Modality, Sequence[str]] = field(init=False)
    """Ids of the pictures, in the order of the records, and of the captions, in that of `pairs`.

    They begin with a digest, because ties are ordered by id: with the records' names, queries'
    items would come before all equal distractors. They are unique, even where distractors share
    names with other records.
    """

    def __post_init__(self) -> None:
        pairs, image_ids, text_ids = [], [], []
        seen: Counter[tuple[str, Modality, str]] = Counter()

        def item_id(number: int, modality: Modality, name: str) -> str:
            place = "asking" if self.asks(number) else "distractor"
            # Distractors of two corpora may have one name.
            seen[place, modality, name] += 1
            again = seen[place, modality, name]
            key = f"{place if again == 1 else f'{place} {again}'}/{modality}/{name}"
            digest = sha256(key.encode(errors="surrogatepass")).hexdigest()
            try:
                return check_item_id(f"{digest[:8]}-{name}")
            except ItemIdInvalid:  # A path may be too long for a server; the digest will do.
                return digest

        for number, (record, captions) in enumerate(self.chosen):
            image_ids.append(item_id(number, Modality.IMAGE, record.record_id))
            text_ids += [item_id(number, Modality.TEXT, each.caption_id) for each in captions]
            pairs += [(record, each) for each in captions]
        object.__setattr__(self, "pairs", tuple(pairs))
        object.__setattr__(self, "item_ids", {Modality.IMAGE: image_ids, Modality.TEXT: text_ids})

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(record for record, _ in self.chosen)

    def asks(self, number: int) -> bool:
        return number < self.asking_count

    def items(self) -> Iterator[tuple[str, str | PictureContent]]:
        """Yields every item to ingest: all pictures, then all captions."""
        for item_id, record in zip(self.item_ids[Modality.IMAGE], self.records, strict=True):
            yield item_id, self.content_of(record)
        for item_id, (_, caption) in zip(self.item_ids[Modality.TEXT], self.pairs, strict=True):
            yield item_id, caption.text

    def queries(
        self, target: Modality, numbers: Iterable[int] | None = None
    ) -> Iterator[EvaluationQuery]:
        """Yields the queries for items of the `target` modality, in the records' order.

        A caption's answer is its picture, a picture's are its captions. `numbers` selects queries.
        """
        ids, answers = self.item_ids[target], self.answers(target)
        for number in range(len(answers)) if numbers is None else numbers:
            query: str | PictureContent
            if target is Modality.TEXT:
                query = self.content_of(self.chosen[number][0])
            else:
                query = self.pairs[number][1].text
            yield EvaluationQuery(query, target, {ids[answer]: 1 for answer in answers[number]})

    def directions(self, query_count: int | None = None) -> Iterator[Direction]:
        """Yields both directions, with all queries or `query_count` of each."""
        for name, target in DIRECTIONS.items():
            numbers = self.query_numbers(target, query_count)
            every, pictures = self.languages(target), self.query_pictures(target)
            yield Direction(
                name,
                [every[number] for number in numbers],
                partial(self.queries, target, numbers),
                tuple(pictures[number] for number in numbers if pictures),
            )

    def languages(self, target: Modality) -> list[str]:
        asking = self.chosen[: self.asking_count]
        if target is Modality.TEXT:
            return [captions[0].language for _, captions in asking]
        return [caption.language for _, captions in asking for caption in captions]

    def query_pictures(self, target: Modality) -> tuple[int, ...]:
        """Returns the number of each query's picture; empty if no two share one."""
        asking = enumerate(self.chosen[: self.asking_count])
        pictures = [number for number, (_, captions) in asking for _ in captions]
        shares = target is Modality.IMAGE and len(set(pictures)) < len(pictures)
        return tuple(pictures) if shares else ()

    def answers(self, target: Modality) -> list[set[int]]:
        """Returns the numbers of each query's answers among the items of the target modality."""
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
        """Returns the items that each query is true of, numbered as in `answers`.

        These are its answers and the items that share a caption: of two pictures of two dogs, each
        is one caption's answer, but both match both captions. A match probability counts matches.
        """
        numbers: dict[str, set[int]] = {}
        if target is Modality.IMAGE:
            for number, (record, _) in enumerate(self.chosen):
                for caption in record.captions:
                    numbers.setdefault(folded_text(caption.text), set()).add(number)
            asking_pairs = self.pairs[: len(self.languages(target))]
            return [numbers[folded_text(caption.text)] for _, caption in asking_pairs]
        for number, (_, caption) in enumerate(self.pairs):
            numbers.setdefault(folded_text(caption.text), set()).add(number)
        return [
            set().union(
                *(numbers.get(folded_text(caption.text), ()) for caption in record.captions)
            )
            for record, _ in self.chosen[: self.asking_count]
        ]

    def query_numbers(self, target: Modality, query_count: int | None = None) -> Sequence[int]:
        """Returns the numbers of `query_count` queries, spread over the gallery, or of all.

        Drawn at random, the same in every run: every n-th query could be of one language only.
        """
        total = len(self.languages(target))
        if query_count is None or query_count >= total:
            return range(total)
        rng = random.Random(f"{total}/{query_count}")
        bounds = [number * total // query_count for number in range(query_count + 1)]
        return [rng.randrange(start, end) for start, end in pairwise(bounds)]

    def best_recall_at_1(self, target: Modality, numbers: Iterable[int] | None = None) -> float:
        """Returns the R@1, in percent, that a perfect model is expected to reach.

        Items that share a caption are indistinguishable: a query that is true of four items, one of
        them its answer, finds it first once in four times. Distractors make this more frequent.
        """
        answered = zip(self.answers(target), self.matches(target), strict=True)
        shares = [len(answers) / len(matches) for answers, matches in answered]
        return 100 * fmean(shares if numbers is None else [shares[number] for number in numbers])

    def tie_order(self, target: Modality) -> list[int]:
        """Returns the numbers of the target's items in the order that breaks ties."""
        ids = self.item_ids[target]
        return sorted(range(len(ids)), key=ids.__getitem__)

    def only(self, numbers: Container[int]) -> "Gallery":
        kept = [(number, each) for number, each in enumerate(self.chosen) if number in numbers]
        asking_count = sum(self.asks(number) for number, _ in kept)
        return replace(self, chosen=tuple(each for _, each in kept), asking_count=asking_count)


def make_gallery(
    records: Iterable[Record],
    languages: Sequence[str],
    captions_per_picture: int = 1,
    distractors: Iterable[Record] = (),
    *,
    any_match: bool = False,
) -> Gallery:
    """Returns a gallery of the records, followed by `distractors`, which are not queries.

    Raises ValueError if a picture has captions, but none in its family's language.
    """
    asking, behind = list(records), list(distractors)
    # A distractor's family may share the name of a query's, but is another.
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
    """Returns the languages in which every record with captions has one, in the first's order.

    Raises ValueError if there is none.
    """
    captioned = [record.captions for record in records if record.captions]
    languages = [{each.language for each in captions} for captions in captioned]
    shared = set.intersection(*languages) if languages else set()
    if not shared:
        there = ", ".join(sorted(set().union(*languages))) or "none"
        raise ValueError(
            f"no language has a caption for every picture: captions are in {there}; evaluate one "
            "by one, with --language LANGUAGE"
        )
    ordered = dict.fromkeys(caption.language for caption in captioned[0])
    return [language for language in ordered if language in shared]


def folds(records: Sequence[Record], fold_count: int) -> list[Sequence[Record]]:
    """Returns the records as `fold_count` galleries of the same size, in their order.

    This is the protocol of COCO's "1k": each fold is searched on its own and recalls are averaged.
    A family that is cut would make both parts easier, and is refused.
    """
    if len(records) % fold_count:
        whole = len(records) - len(records) % fold_count
        smaller = f", or {whole} records with --count" if whole else ""
        raise ValueError(
            f"{len(records)} records do not divide into {fold_count} folds; take another number of "
            f"folds{smaller}"
        )
    size = len(records) // fold_count
    for start in range(size, len(records), size):
        if records[start - 1].family == records[start].family:
            raise ValueError(
                f"folds of {size} records cut the family {records[start].family!r} in two; "
                "take another number of folds"
            )
    return [records[start : start + size] for start in range(0, len(records), size)]


@dataclass(frozen=True, slots=True)
class GalleryDigest:
    sha256: str
    """Of ids and captions of all records in their order, and of the pictures that ask."""
    pictures: Mapping[str, bytes]
    """SHA-256 of each asking picture's file, by record id; empty if regions replace pictures."""


def gallery_digest(galleries: Iterable[Gallery], *, reads_pictures: bool = True) -> GalleryDigest:
    """Returns the digest of galleries; raises RecordUnreadable for a picture that is not there."""
    digest = sha256()
    pictures: dict[str, bytes] = {}
    for gallery in galleries:
        for number, (record, chosen) in enumerate(gallery.chosen):
            captions = [(each.language, each.text) for each in chosen]
            # As JSON, so that different captions cannot concatenate to the same text.
            digest.update(json.dumps([record.record_id, captions]).encode() + b"\n")
            if reads_pictures and gallery.asks(number):
                pictures[record.record_id] = sha256(picture_bytes(record)).digest()
                digest.update(pictures[record.record_id])
        digest.update(b"\n")
    return GalleryDigest(digest.hexdigest(), pictures)
