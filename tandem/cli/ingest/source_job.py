"""Brings into an index what a source has and the index lacks, and resumes."""

import enum
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self, TypeVar

import typer

from tandem.cli.corpora.corpora import (
    COLUMN,
    CORPUS_HELP,
    EXCLUDE,
    columns_of,
    corpus_place,
    index_of,
    is_table_corpus,
    open_corpus,
)
from tandem.cli.corpora.detector_files import (
    SentRecord,
    open_detector_files,
    with_pictures,
    with_regions,
)
from tandem.cli.ingest.demo_note import say_if_demo_serves
from tandem.cli.ingest.item_ingest import Counts, ingest_items
from tandem.cli.ingest.job_record import JobRecord, Row, Status, job_path
from tandem.cli.ingest.sent_items import ItemForm, SentItems, with_row
from tandem.cli.options import ADDRESS, nobody_there, user_path
from tandem.cli.terminal.console import errors
from tandem.cli.terminal.json_answer import json_text
from tandem.client import Access, Client, ItemPatch, StoredItem, TruncationPolicy
from tandem.client.calls.retries import DEFAULT_RETRIES
from tandem.client.ingest.rounds import may_be_stored_later
from tandem.contract.content import MAX_IMAGE_BYTES, Modality
from tandem.contract.limits import MAX_CONSISTENCY_TOKEN_COUNT
from tandem.corpus.errors import NothingRead
from tandem.corpus.readable_records import OnError, SkippedRecords, records_with_pictures
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Record
from tandem.errors import (
    ConsistencyTokenInvalid,
    IndexNotFound,
    ItemNotFound,
    PermissionDenied,
    SequenceNotReached,
    TandemError,
)

if TYPE_CHECKING:
    from tandem.cli.ingest.duplicates import Duplicates

DEFAULT_SPLIT: Final = "test"
DEFAULT_SEED: Final = 1
_AGAIN_SECONDS: Final = 2.0
_REFUSED: Final = "refused:"
_TOKENS: Final = "consistency tokens"

_Done = TypeVar("_Done")


class LongTexts(enum.StrEnum):
    """What to do with a caption that has more tokens than the model reads."""

    ERROR = "error"
    TRUNCATE = "truncate"


class DuplicatePolicy(enum.StrEnum):
    """What to do with a picture that the index has under another id."""

    KEEP = "keep"
    SKIP = "skip"
    LINK = "link"
    REPLACE = "replace"


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
    duplicates: Annotated[
        DuplicatePolicy,
        "a picture that looks like a stored one of this source: keep both, skip it, link its name "
        "to the stored one, or replace that",
    ] = DuplicatePolicy.KEEP
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
        """Opens the source, so that one that is not there is refused before anything is made."""
        self._only: set[str] | None = None
        """The records that are tried again."""
        if asked.corpus.startswith(_REFUSED):
            asked, self._only = _again(asked, user_path(asked.corpus.removeprefix(_REFUSED)))
        self.asked = asked
        self.index_id = index_of(asked.corpus) if asked.index is None else asked.index
        self.unit = "rows" if is_table_corpus(asked.corpus) else "pictures"
        kind, path = corpus_place(asked.corpus)
        named = f"{kind}:{path}" if kind else str(path)
        self._source = named if path.exists() else asked.corpus
        self._counts, self._has_answered = Counts(), False
        policy = TruncationPolicy(asked.long_texts.value)
        has_regions = asked.regions is not None
        self._form = ItemForm(asked.captions, asked.caption_attribute, has_regions, policy)
        self._unread: RecordStream | None = None
        self._unread = self.records()

    def records(self) -> RecordStream:
        """Returns the source's records, and counts again what is left out of them."""
        if self._unread is not None:
            opened, self._unread = self._unread, None
            return opened
        asked = self.asked
        goes_on, excluded = asked.on_error is OnError.SKIP, tuple(asked.exclude or ())
        self.skipped = SkippedRecords(goes_on, excluded)
        columns = columns_of(asked.column)
        return open_corpus(
            asked.corpus, asked.split, asked.seed, asked.count, self.skipped, columns
        )

    def send(self) -> SentItems:
        """Ingests what the index lacks."""
        opened, only = self.records(), self._only
        chosen = (each for each in opened if only is None or each.record_id in only)
        found = self.duplicates()
        sent = SentItems(
            *(self.job, self._form, self._read),
            reads_all=only is not None,
            is_duplicate=found.takes if found else None,
        )
        ingest_items(
            self.client,
            self.index_id,
            sent.of(chosen),
            opened.total if only is None else len(only),
            self._form.truncation_policy,
            sent=sent,
            counts=self._counts,
            unit=self.unit,
        )
        self.note_write(sent.token)
        self.change(sent.changed)
        if found:
            found.settle()
        if count := sent.scaled_down_count:
            over = f"{MAX_IMAGE_BYTES:,} bytes"
            errors.print(f"scaled down, as they are over {over}: {count:,}; they are stored so")
        return sent

    def change(self, rows: Sequence[tuple[Row, Row]], *, is_copy: bool = False) -> bool:
        """Changes attributes, or copies them; returns whether one is to be encoded instead."""
        patches = [
            ItemPatch(
                row.item_id,
                dict.fromkeys(json.loads(old.attributes)) | json.loads(row.attributes),
                copied_from_item_id=old.item_id if is_copy else "",
            )
            for row, old in rows
            if is_copy or row.attributes != old.attributes
        ]
        changes = self.client.change(patches, index_id=self.index_id) if patches else None
        failures = changes.failures if changes else ()
        self.note_write(changes.consistency_token if changes else "")
        failed = {each.item_id for each in failures}
        self.job.write(
            replace(row, status=Status.SENT if row.item_id in failed else Status.STORED)
            for row, _ in rows
        )
        for each in failures:
            if may_be_stored_later(each.error):  # It is copied by the next attempt.
                raise each.error
        return bool(failed)

    def note_write(self, token: str) -> None:
        """Keeps the consistency token of a write, by which a restored index is known."""
        tokens = [*self.job.kept(_TOKENS).split(), token][-MAX_CONSISTENCY_TOKEN_COUNT:]
        self.job.keep(_TOKENS, " ".join(tokens))

    def duplicates(self) -> "Duplicates | None":
        """Returns what finds duplicates, if they are not kept."""
        if self.asked.duplicates is DuplicatePolicy.KEEP:
            return None
        # Imported here, because imagehash is an extra.
        from tandem.cli.ingest.duplicates import Duplicates

        return Duplicates(self.job, self.client, self.index_id, self.asked.duplicates)

    def until_done(self, attempt: Callable[[], _Done]) -> _Done:
        """Returns what `attempt` does, which is repeated while the server is away.

        As an ingest does with single items, it waits for a time without any progress.
        """
        known: tuple[int, int] | None = None
        give_up_time = 0.0
        while True:
            try:
                return attempt()
            except TandemError as error:
                before, known = known, self.job.counts()
                if before != known:
                    give_up_time = time.monotonic() + DEFAULT_RETRIES.ingest_wait_seconds
                is_absent = nobody_there(self.asked.address) and not self._has_answered
                if is_absent or not may_be_stored_later(error) or time.monotonic() > give_up_time:
                    raise
                if before != known:
                    errors.print(f"{error.reason}: tried again until the server is there")
                time.sleep(_AGAIN_SECONDS)

    def __enter__(self) -> Self:
        asked = self.asked
        own_path = job_path(asked.address, self.index_id, f"{self._source} {asked.split}")
        with ExitStack() as opened:
            try:
                self.job = opened.enter_context(JobRecord(asked.job or own_path))
            except OSError as error:
                if asked.job is not None:
                    raise
                errors.print(f"the next run cannot resume here: {error}; --job names another file")
                self.job = opened.enter_context(JobRecord(None))
            access = Access.from_environment()
            self.client = opened.enter_context(Client(asked.address, access=access))
            say_if_demo_serves(self.client, asked.corpus)
            self.other_ids = self.until_done(self._compared)
            self.job.free_duplicates(everything=asked.duplicates is DuplicatePolicy.KEEP)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._opened:
            left_count = self._write_refused()
        if not isinstance(error, NothingRead):  # It prints its own message.
            # "Nothing" is not true of what the server refused.
            is_whole = error is None and not left_count
            for line in self.skipped.report() if is_whole else self.skipped.lines():
                errors.print(line)
        if error is None:
            self._counts.answer(self.index_id)
            if self._counts.refused:
                raise typer.Exit(1)

    def _compared(self) -> set[str]:
        """Finds out which stored items the index has lost; returns ids that the job has not."""
        try:
            items = self.client.list_items(index_id=self.index_id)
            self.stored_ids = {each.item_id for each in items}
        except (IndexNotFound, PermissionDenied):
            self.stored_ids = set()  # A token that may only write sees nothing, so all is sent.
        self._has_answered = True
        with suppress(IndexNotFound, ItemNotFound, PermissionDenied):
            self._compare_contents()
        lost_count, others = self.job.compare(self.stored_ids)
        if lost_count:
            errors.print(f"{self.index_id} has lost {lost_count:,} items, which are stored again")
        return others

    def _compare_contents(self) -> None:
        """Has what the index has otherwise be sent again, if it lost a write; names its model."""
        model = self.client.describe_index(index_id=self.index_id).model_fingerprint
        if (before := self.job.kept("model")) not in ("", model):
            errors.print(f"{self.index_id} is of the model {model} now, and was of {before}")
        self.job.keep("model", model)
        if not self.stored_ids or not (tokens := self.job.kept(_TOKENS).split()):
            return
        try:
            self.client.search(
                StoredItem(min(self.stored_ids)),
                index_id=self.index_id,
                target_modality=Modality.TEXT,
                rerank_disabled=True,
                consistency_tokens=tokens,
            )
            return
        except (ConsistencyTokenInvalid, SequenceNotReached):
            errors.print(f"{self.index_id} is not as it was left, and its contents are compared")
        differing = []
        for row in self.job.every("status='stored'"):
            for item in self.client.fetch_items([row.item_id], index_id=self.index_id):
                has, _ = with_row(row.record_id, row.item_id, item.content, item.attributes)
                is_same = json.loads(row.attributes).items() <= json.loads(has.attributes).items()
                if has.digest != row.digest or not is_same:
                    differing.append((Status.SENT, "", row.item_id))
        self.job.answer(differing)
        self.job.keep(_TOKENS, "")

    def _write_refused(self) -> int:
        """Writes what could not be stored to a file that is a source; returns how much."""
        refused = self.job.every("status='refused'")
        left = [(row.record_id, *row.why.split(": ", 1)) for row in refused]
        left += self.skipped.unreadable
        about = {"corpus": self._source, "split": self.asked.split, "index_id": self.index_id}
        names = "record_id", "reason", "message"
        lines = [json_text(about | dict(zip(names, each, strict=True))) for each in left]
        if self.job.path is None or self._only is not None:
            return len(left)
        path = self.job.path.with_suffix(".refused.jsonl")
        path.write_text("".join(f"{line}\n" for line in lines))
        if left:
            kinds = Counter(reason for _, reason, _ in left).most_common()
            errors.print(
                f"{len(left):,} could not be stored "
                f"({', '.join(f'{reason} {count:,}' for reason, count in kinds)}), by name in "
                f"{path}; try these alone by: tandem ingest {_REFUSED}{path}"
            )
        return len(left)

    def _read(self, records: Iterable[Record]) -> Iterable[SentRecord]:
        if self.asked.regions is None:
            return with_pictures(records_with_pictures(records, self.skipped))
        found = RecordRegions(open_detector_files(self.asked.regions, self.skipped))
        return with_regions(records, found, self.skipped)


def _again(asked: SourceOptions, path: Path) -> tuple[SourceOptions, set[str]]:
    """Returns the options for the source of refused items, and the records that they are of."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        corpus, split, index_id = (lines[0][name] for name in ("corpus", "split", "index_id"))
        only = {line["record_id"] for line in lines}
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is not a file of refused items ({error})") from error
    return replace(asked, corpus=corpus, split=split, index=asked.index or index_id), only
