"""Drops captions that are too long for a model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tandem.corpus.records import Record
from tandem.errors import TextEmpty, TextTooLong
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.visible_text import TextNotUnicode


@dataclass(slots=True)
class FittingCaptions:
    """Drops captions, not records, and counts them.

    A quarter of the emoji have a caption that exceeds the bundled model's 64 tokens. A record of
    which no caption would be left is unchanged, so that its reader reports it by name.
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
            # The record's reader finds this again, and can name or skip the record.
            return False
        return False
