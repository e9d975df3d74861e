"""Records without the captions that are too long for a model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tandem.corpus.records import Record
from tandem.errors import TextEmpty, TextTooLong
from tandem.model_io.text import TextPreprocessor
from tandem.model_io.visible_text import TextNotUnicode


@dataclass(slots=True)
class FittingCaptions:
    """Leaves out captions, not records, and counts what it left out.

    A corpus' longest captions may not fit a model, as a fourth of the emoji have one that does not
    fit the shipped model's 64 tokens. A record of which none would be left comes as it is: what
    reads it says what is wrong with it, and of which record, as of a caption that is empty.
    """

    texts: TextPreprocessor
    kept_count: int = 0
    dropped_count: int = 0

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yields the records in their order, each with the captions that are not too long."""
        for record in records:
            fitting = tuple(
                caption for caption in record.captions if not self._is_too_long(caption.text)
            )
            self.kept_count += len(fitting)
            self.dropped_count += len(record.captions) - len(fitting)
            yield replace(record, captions=fitting or record.captions)

    def _is_too_long(self, text: str) -> bool:
        try:
            self.texts.token_ids(text)
        except TextTooLong:
            return True
        except (TextEmpty, TextNotUnicode):
            # Whoever reads the record finds it again, and can name the record, or skip it.
            return False
        return False
