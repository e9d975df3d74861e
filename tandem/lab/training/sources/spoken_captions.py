"""Keeps the captions of some languages, where a corpus has several."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tandem.corpus.records import Record


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
