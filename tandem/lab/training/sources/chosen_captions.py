"""Chooses the captions of a corpus that a run reads: those of some languages, those that fit."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tandem.corpus.records import Record
from tandem.errors import TextEmpty, TextTooLong
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.visible_text import TextNotUnicode


@dataclass(slots=True)
class SpokenCaptions:
    """Drops captions of other languages, and records that have none of these."""

    languages: tuple[str, ...]
    left_out_count: int = 0
    """Records that have captions, but none in these languages."""
    _seen: Counter[str] = field(default_factory=Counter)

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yields the records in their order, each with its captions in these languages.

        A record without any caption is unchanged, so that its reader reports it by name. Raises
        ValueError, naming the languages that there are, where no caption is in these.
        """
        kept_count = 0
        for record in records:
            self._seen.update(caption.language for caption in record.captions)
            spoken = tuple(each for each in record.captions if each.language in self.languages)
            if record.captions and not spoken:
                self.left_out_count += 1
                continue
            kept_count += len(spoken)
            yield replace(record, captions=spoken)
        if self._seen and not kept_count:
            there = ", ".join(language for language, _ in self._seen.most_common())
            raise ValueError(
                f"no caption is in {' or '.join(self.languages)}; the corpus has captions in "
                f"{there}: name one of them with --language"
            )


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
