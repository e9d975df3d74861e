"""Records without the captions that are too long for a model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tandem.corpus.records import Record
from tandem.errors import TextTooLong
from tandem.model_io.text import TextPreprocessor


@dataclass(slots=True)
class FittingCaptions:
    """Leaves out captions, not records, and counts what it left out.

    A corpus' longest captions may not fit a model, as a fourth of the emoji have one that does not
    fit the shipped model's 64 tokens. A record that has none left comes without captions.
    """

    texts: TextPreprocessor
    kept_count: int = 0
    dropped_count: int = 0

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yields the records in their order, each with the captions that fit."""
        for record in records:
            fitting = tuple(caption for caption in record.captions if self._fits(caption.text))
            self.kept_count += len(fitting)
            self.dropped_count += len(record.captions) - len(fitting)
            yield replace(record, captions=fitting)

    def _fits(self, text: str) -> bool:
        try:
            self.texts.token_ids(text)
        except TextTooLong:
            return False
        return True
