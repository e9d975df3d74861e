"""Counts what a corpus contains and a reader did not return: skipped files, rejected records."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Final

from tandem.corpus.errors import CorpusError

SHOWN_COUNT: Final = 10
"""Number of records that a report names."""
_SHOWN_FILE_COUNT = 3
"""Number of files that a report names for each reason."""
_LISTS: Final = (".csv", ".json", ".jsonl", ".ndjson", ".tsv", ".xlsx")
"""Extensions of files that often list captions, and that a folder's reader skips."""


class FileFault(StrEnum):
    """Lists why a file, folder or row was skipped, other than for its format."""

    HIDDEN = "hidden"
    EXCLUDED = "excluded"
    OF_OTHER_PROGRAMS = "of other programs"
    OTHER_FORMAT = "picture again in another format"
    NOTE = "text without a picture"
    NOT_PLAIN = "no plain file"
    UNLISTED = "cannot be listed"
    NAME_NOT_UTF8 = "name not UTF-8"
    LEADS_OUT = "link out of the corpus"
    SUBFOLDER = "subfolder with pictures"
    AGAIN = "link to a folder read already"
    EXTRA = "extra file of a record"
    OTHER_SPLIT = "split by another word for its name"
    COMPRESSED = "compressed archive"
    DAMAGED = "damaged archive"
    PARTS_MISSING = "files that should be there"
    REPLACED = "row with the id of a later one"


class ReaderFault(StrEnum):
    """Lists why a reader rejects a record, as reports show it."""

    MALFORMED = "not as its layout allows"
    SAME_ID = "id that another has"
    ID_UNREADABLE = "id not readable"


@dataclass(slots=True)
class LeftOut:
    """Counts what was left out, by reason; readers add to it, and every command reports it."""

    goes_on: bool = False
    """Whether a reader continues after a record that it cannot read; otherwise it raises."""
    excluded: tuple[str, ...] = ()
    """Globs of files and folders that no reader lists (plain_file.py)."""
    counts: Counter[str] = field(default_factory=Counter)
    """Records by fault."""
    first: list[str] = field(default_factory=list)
    """Messages about the first SHOWN_COUNT records."""
    file_counts: Counter[str] = field(default_factory=Counter)
    """Skipped files and folders, by extension or FileFault."""
    first_files: dict[str, list[str]] = field(default_factory=dict)
    """The first few files for each reason."""
    uncaptioned_count: int = 0
    """Pictures that were read without a caption."""
    notes: list[str] = field(default_factory=list)
    """What else readers of the report should know."""
    column_counts: Counter[str] = field(default_factory=Counter)
    """Values of a table's columns that no attribute has, by column and why."""
    _seen: set[int] = field(default_factory=set, repr=False)

    @property
    def count(self) -> int:
        """Number of records that were left out."""
        return self.counts.total()

    @property
    def all_counts(self) -> dict[str, int]:
        """Numbers of records and files that were left out, by reason."""
        files = {f"passed over: {why}": n for why, n in self.file_counts.items()}
        columns = {f"values left out: {column}": n for column, n in self.column_counts.items()}
        return {str(fault): n for fault, n in self.counts.items()} | files | columns

    def refuse(self, error: CorpusError, fault: str = ReaderFault.MALFORMED) -> None:
        """Raises the error of a record that cannot be read, or counts it if `goes_on`."""
        if not self.goes_on:
            raise error
        if self._is_new(fault, str(error)):
            self.add_record(fault, str(error))

    def add_record(self, fault: str, message: str) -> None:
        """Counts a record by its first fault."""
        self.counts[fault] += 1
        if len(self.first) < SHOWN_COUNT:
            # The message, because the error's traceback would keep the record's bytes alive.
            self.first.append(message)

    def pass_over(self, path: str | PurePath, why: FileFault | None = None) -> None:
        """Counts a file or folder that is not read, by `why` or by its extension."""
        reason = str(why or extension_of(path))
        if not self._is_new(reason, str(path)):
            return
        self.file_counts[reason] += 1
        shown = self.first_files.setdefault(reason, [])
        if len(shown) < _SHOWN_FILE_COUNT:
            shown.append(str(path))

    def note(self, line: str) -> None:
        """Adds a line to the report, once."""
        if line not in self.notes:
            self.notes.append(line)

    def _is_new(self, reason: str, message: str) -> bool:
        """Returns whether this is new, because two splits may read the same file."""
        key = hash((reason, message))
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new

    def lines(self) -> Iterator[str]:
        """Yields the report: counts by reason and the first names; nothing if all was read."""
        yield from self.record_lines()
        yield from self.file_lines()
        if self.uncaptioned_count:
            yield f"pictures without captions: {self.uncaptioned_count:,}"
        for column, count in self.column_counts.items():
            yield _printable(f"values left out: {count:,} ({column})")
        yield from map(_printable, self.notes)

    def summary(self) -> str:
        """Returns the report in one line, for an error's message."""
        return "; ".join(line.strip() for line in self.lines())

    def report(self) -> Iterator[str]:
        """Yields the report, or one line that says that nothing was left out."""
        yield from list(self.lines()) or ["left out: nothing"]

    def unread_lists(self) -> str:
        """Returns what to do about skipped files that may have captions; nothing without any."""
        reasons = (*_LISTS, FileFault.NOTE)
        files = [name for why in reasons for name in self.first_files.get(why, ())]
        if not files:
            return ""
        return (
            f"{', '.join(map(_printable, files))}: no captions are read from it; write them into a "
            "text file of each picture's name next to it, or name a table of pictures and captions "
            "instead of the folder: table:FILE"
        )

    def record_lines(self) -> Iterator[str]:
        """Yields the lines about records."""
        if not self.count:
            return
        faults = ", ".join(f"{fault} {count:,}" for fault, count in self.counts.most_common())
        yield f"skipped records: {self.count:,} ({faults})"
        yield from (f"  {_printable(message)}" for message in self.first)
        if self.count > len(self.first):
            yield f"  and {self.count - len(self.first):,} more"

    def file_lines(self) -> Iterator[str]:
        """Yields the lines about files."""
        if not self.file_counts:
            return
        counted = self.file_counts.most_common()
        reasons = _printable(", ".join(f"{why} {count:,}" for why, count in counted))
        yield f"passed over: {self.file_counts.total():,} ({reasons})"
        for why, count in counted:
            named = self.first_files[why]
            more = f" and {count - len(named):,} more" if count > len(named) else ""
            yield _printable(f"  {why}: {', '.join(named)}{more}")


def extension_of(path: str | PurePath) -> str:
    """Returns a name's last extension in lower case, or "no extension"."""
    return Path(path).suffix.lower() or "no extension"


def _printable(line: str) -> str:
    # Names from disks and JSON may have lone surrogates, which cannot be printed, and line feeds.
    return line.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
