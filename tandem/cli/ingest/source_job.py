"""Brings into an index what a source has and the index lacks, and resumes."""

import enum
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self, TypeVar

import typer

from tandem.cli.corpora.corpora import (
    COLUMN,
    CORPUS_HELP,
    EXCLUDE,
    columns_of,
    corpus_place,
    index_of,
    open_corpus,
)
from tandem.cli.corpora.detector_files import (
    SentRecord,
    open_detector_files,
    with_pictures,
    with_regions,
)
from tandem.cli.index.listed_ids import listed_ids
from tandem.cli.ingest.demo_note import say_if_demo_serves
from tandem.cli.ingest.item_ingest import Counts, ingest_items
from tandem.cli.ingest.job_record import JobRecord, job_path
from tandem.cli.ingest.sent_items import ItemForm, SentItems
from tandem.cli.options import ADDRESS
from tandem.cli.terminal.console import errors
from tandem.client import Access, Client, TruncationPolicy
from tandem.client.calls.retries import DEFAULT_RETRIES
from tandem.client.ingest.rounds import may_be_stored_later
from tandem.contract.content import MAX_IMAGE_BYTES
from tandem.corpus.errors import NothingRead
from tandem.corpus.readable_records import OnError, SkippedRecords, records_with_pictures
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Record
from tandem.errors import PermissionDenied, TandemError

DEFAULT_SPLIT: Final = "test"
DEFAULT_SEED: Final = 1
_AGAIN_SECONDS: Final = 2.0

_Done = TypeVar("_Done")


class LongTexts(enum.StrEnum):
    """What to do with a caption that has more tokens than the model reads."""

    ERROR = "error"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of commands that read a source."""

    corpus: Annotated[str, typer.Argument(help=CORPUS_HELP)]
    index: Annotated[
        str | None, "index to ingest into; by default the folder's name, or scenes"
    ] = None
    split: Annotated[str, "split of the corpus; COCO also has train_without_restval"] = (
        DEFAULT_SPLIT
    )
    count: Annotated[
        int | None,
        typer.Option(
            help="number of images, for scenes a multiple of 4; by default all, and 2,000 scenes",
            min=1,
        ),
    ] = None
    seed: Annotated[int, "which scenes"] = DEFAULT_SEED
    exclude: EXCLUDE = None
    column: COLUMN = None
    on_error: Annotated[
        OnError,
        "what to do with an unreadable image or caption: stop, or skip and count it; "
        "refusals of the server never stop the ingest",
    ] = OnError.STOP
    captions: Annotated[bool, "whether to ingest the captions too, as text items"] = True
    caption_attribute: Annotated[
        str | None,
        "attribute of an image in which to store its captions, by whose words hybrid "
        "searches find it: caption, unless the server names others",
    ] = None
    long_texts: Annotated[
        LongTexts,
        typer.Option(
            "--truncation-policy",
            help="what to do with a caption over the model's token limit: truncate and count it, "
            "or refuse it",
        ),
    ] = LongTexts.TRUNCATE
    regions: Annotated[
        Path | None, "file or folder of a detector, whose regions are sent instead of the images"
    ] = None
    job: Annotated[
        Path | None,
        "file that keeps what was stored, so that the same command resumes; by default below "
        "XDG_STATE_HOME",
    ] = None
    address: ADDRESS = "127.0.0.1:7400"


class SourceJob:
    """A source, an index, and the record of what the one has of the other.

    Use it in a with statement, which prints what was left out at its end.
    """

    def __init__(self, asked: SourceOptions) -> None:
        """Opens nothing yet."""
        self.asked = asked
        self.index_id = index_of(asked.corpus) if asked.index is None else asked.index
        self.counts = Counts()
        self._form = ItemForm(
            asked.captions, asked.caption_attribute, f"{asked.long_texts} {asked.regions}"
        )
        self._opened = ExitStack()
        self._unread: RecordStream | None = None

    def records(self) -> RecordStream:
        """Returns the source's records, and counts again what is left out of them."""
        if self._unread is not None:
            opened, self._unread = self._unread, None
            return opened
        asked = self.asked
        self.skipped = SkippedRecords(
            goes_on=asked.on_error is OnError.SKIP, excluded=tuple(asked.exclude or ())
        )
        columns = columns_of(asked.column)
        return open_corpus(
            asked.corpus, asked.split, asked.seed, asked.count, self.skipped, columns
        )

    def compare(self) -> list[str]:
        """Finds out which stored items the index has lost; returns ids that the job does not know.

        Raises a TandemError if the server does not answer.
        """
        try:
            ids = list(listed_ids(self.asked.address, self.index_id))
        except PermissionDenied:  # By a token that may only write: nothing is known, all is sent.
            ids = []
        lost_count, others = self.job.compare(ids)
        if lost_count:
            errors.print(
                f"{self.index_id} no longer has {lost_count:,} items that were stored: they are "
                "stored again"
            )
        return others

    def send(self) -> SentItems:
        """Ingests what the index lacks."""
        asked, opened = self.asked, self.records()
        sent = SentItems(self.job, self._form, self._read)
        ingest_items(
            self.client,
            self.index_id,
            sent.of(opened),
            opened.total,
            TruncationPolicy(asked.long_texts.value),
            sent=sent,
            counts=self.counts,
        )
        if sent.scaled_down_count:
            errors.print(
                f"scaled down, as they are over {MAX_IMAGE_BYTES:,} bytes: "
                f"{sent.scaled_down_count:,}; they are stored so"
            )
        return sent

    def until_done(self, attempt: Callable[[], _Done]) -> _Done:
        """Returns what `attempt` does, which is repeated while the server is away.

        As an ingest does with single items, it waits for a time without any progress.
        """
        known, give_up_time = None, 0.0
        while True:
            try:
                return attempt()
            except TandemError as error:
                if known != (known := self.job.counts()):
                    give_up_time = time.monotonic() + DEFAULT_RETRIES.ingest_wait_seconds
                if not may_be_stored_later(error) or time.monotonic() > give_up_time:
                    if self.counts.stored:
                        errors.print(f"{self.counts.stored:,} items were stored before, and stay")
                    raise
                errors.print(f"{error.reason}: tried again until the server is there")
                time.sleep(_AGAIN_SECONDS)

    def __enter__(self) -> Self:
        # First, because a source that is not there is refused before anything is made.
        self._unread = self.records()
        asked = self.asked
        kind, path = corpus_place(asked.corpus)
        source = f"{kind}:{path}" if path.exists() else asked.corpus
        own_path = job_path(asked.address, self.index_id, f"{source} {asked.split}")
        try:
            self.job = self._opened.enter_context(JobRecord(asked.job or own_path))
        except OSError as error:
            if asked.job is not None:
                raise
            errors.print(f"the next run cannot resume here: {error}; --job names another file")
            self.job = self._opened.enter_context(JobRecord(None))
        access = Access.from_environment()
        self.client = self._opened.enter_context(Client(asked.address, access=access))
        say_if_demo_serves(self.client, asked.corpus)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._opened.close()
        if isinstance(error, NothingRead):
            return  # It prints its own message.
        # "Nothing" is not true of what the server refused, which is printed above.
        is_whole = error is None and not self.counts.refused
        for line in self.skipped.report() if is_whole else self.skipped.lines():
            errors.print(line)

    def _read(self, records: Iterable[Record]) -> Iterable[SentRecord]:
        if self.asked.regions is None:
            return with_pictures(records_with_pictures(records, self.skipped))
        found = RecordRegions(open_detector_files(self.asked.regions, self.skipped))
        return with_regions(records, found, self.skipped)
