"""What an evaluation searches and what it asks: one picture and one caption of each record."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tandem.content import Modality
from tandem.corpus.records import Caption, Record


@dataclass(frozen=True, slots=True)
class EvaluationQuery:
    """A query and the one item that answers it."""

    query: str | bytes
    target_modality: Modality
    answer_id: str
    language: str
    """Of the caption that is asked with or looked for."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """Records with the caption chosen for each.

    A family's captions are all in one language, so that a caption's siblings stay its hardest
    rivals; families take turns through the languages.
    """

    pairs: tuple[tuple[Record, Caption], ...]

    def items(self) -> Iterator[tuple[str, str | bytes]]:
        """Yields every item to ingest: all pictures, then all captions."""
        for record, _ in self.pairs:
            yield record.record_id, record.image.read()
        for _, caption in self.pairs:
            yield caption.caption_id, caption.text

    def text_queries(self) -> Iterator[EvaluationQuery]:
        """Yields text -> image queries, in the order of the records."""
        for record, caption in self.pairs:
            yield EvaluationQuery(caption.text, Modality.IMAGE, record.record_id, caption.language)

    def image_queries(self) -> Iterator[EvaluationQuery]:
        """Yields image -> text queries, in the order of the records."""
        for record, caption in self.pairs:
            yield EvaluationQuery(
                record.image.read(), Modality.TEXT, caption.caption_id, caption.language
            )


def make_gallery(records: Iterable[Record], languages: Sequence[str]) -> Gallery:
    """Returns a gallery of the records; raises ValueError if one lacks its family's language."""
    number_of_family: dict[str, int] = {}
    pairs = []
    for record in records:
        number = number_of_family.setdefault(record.family, len(number_of_family))
        language = languages[number % len(languages)]
        caption = next((each for each in record.captions if each.language == language), None)
        if caption is None:
            raise ValueError(f"{record.record_id} has no caption in {language!r}")
        pairs.append((record, caption))
    return Gallery(tuple(pairs))
