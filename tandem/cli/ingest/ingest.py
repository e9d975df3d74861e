"""`tandem ingest`: stores a corpus in an index, and reports errors item by item."""

import enum
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from tandem.cli.command_line import report_if_interrupted
from tandem.cli.corpora.corpora import CORPUS_HELP, index_of, open_corpus
from tandem.cli.corpora.detector_files import (
    SentRecord,
    open_detector_files,
    with_pictures,
    with_regions,
)
from tandem.cli.ingest.demo_note import say_if_demo_serves
from tandem.cli.options import ADDRESS, with_options
from tandem.cli.refusals import described
from tandem.cli.smaller_jpeg import sendable_picture
from tandem.cli.terminal.console import errors, one_line, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.client import (
    Access,
    Client,
    IngestOutcome,
    IngestProgress,
    NewItem,
    TruncationPolicy,
)
from tandem.client.ingest.rounds import may_be_stored_later
from tandem.contract.content import MAX_IMAGE_BYTES
from tandem.contract.filtering.attributes import MAX_TEXT_BYTES, MAX_TEXTS_COUNT, Attributes
from tandem.corpus.errors import NothingRead
from tandem.corpus.readable_records import (
    HeldPicture,
    OnError,
    SkippedRecords,
    records_with_pictures,
)
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Record
from tandem.errors import TandemError

DEFAULT_SPLIT: Final = "test"
DEFAULT_SEED: Final = 1
_SHOWN_ERROR_COUNT = 10


class LongTexts(enum.StrEnum):
    """What to do with a caption that has more tokens than the model reads."""

    ERROR = "error"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """The options of the command."""

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
    address: ADDRESS = "127.0.0.1:7400"


@with_json
@with_options
def ingest(asked: IngestOptions) -> None:
    """Store a corpus: its images and their captions.

    Captions are separate items.
    """
    skipped = SkippedRecords(goes_on=asked.on_error is OnError.SKIP)
    found = (
        None
        if asked.regions is None
        else RecordRegions(open_detector_files(asked.regions, skipped))
    )
    opened = open_corpus(asked.corpus, asked.split, asked.seed, asked.count, skipped)
    scaled_down = _ScaledDown()
    sent: Iterable[SentRecord]
    if found is None:
        sent = with_pictures(scaled_down.of(records_with_pictures(opened, skipped)))
    else:
        sent = with_regions(opened, found, skipped)
    pictures = _PictureCount()
    index_id = index_of(asked.corpus) if asked.index is None else asked.index
    try:
        with Client(asked.address, access=Access.from_environment()) as client:
            say_if_demo_serves(client, asked.corpus)
            refused = ingest_items(
                client,
                index_id,
                pictures.of(sent, asked.captions, asked.caption_attribute),
                opened.total,
                TruncationPolicy(asked.long_texts.value),
                unit="pictures",
                done_of=pictures.done,
            )
    except NothingRead:
        raise  # It prints its own message.
    except BaseException:
        for line in skipped.lines():
            errors.print(line)
        raise
    # "Nothing" is not true of what the server refused, which is printed above.
    for line in skipped.lines() if refused else skipped.report():
        errors.print(line)
    if scaled_down.count:
        errors.print(
            f"scaled down, as they are over {MAX_IMAGE_BYTES:,} bytes: {scaled_down.count:,}; they "
            "are stored so"
        )
    if not pictures.given:
        raise ValueError(f"{asked.corpus}: no picture of split {asked.split!r} was left to ingest")
    if refused:
        raise typer.Exit(1)


def ingest_items(
    client: Client,
    index_id: str,
    items: Iterable[NewItem],
    total: int | None,
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    *,
    unit: str = "items",
    done_of: Callable[[int], int] = int,
    is_kept: bool = True,
) -> list[str]:
    """Ingests with a progress bar; prints the counts, and returns the ids of refused items.

    The bar counts to `total` in units of `done_of` items. It also prints the number of truncated
    texts, how many items a server in trouble left over, and, if the ingest ends early, how many
    are stored.
    """
    stage, counts = f"ingest into {index_id}", _Counts()
    has_waited = False

    def show(progress: IngestProgress) -> None:
        nonlocal has_waited
        note = ""
        if count := progress.waiting_count:
            note = f"{count:,} items wait for the server"
            if not has_waited:
                work.say("the server is busy or restarts: what it cannot take now is sent again")
            has_waited = True
        work.show(stage, done_of(progress.done_count), note=note)

    kept = report_if_interrupted(
        lambda: (
            f"{counts.stored:,} items are stored and stay; the same command again stores the "
            "rest, and none twice"
        )
    )
    with kept if is_kept else nullcontext(), LongWork() as work:
        work.show(stage, 0, total, unit=unit)
        try:
            for outcome in client.ingest(
                items, index_id=index_id, truncation_policy=truncation_policy, progress=show
            ):
                counts.note(outcome)
        except TandemError:
            if is_kept and counts.stored:
                errors.print(f"{counts.stored:,} items were stored before, and stay")
            raise
    counts.tell(index_id, is_kept=is_kept)
    return counts.refused


class _Counts:
    """Counts the outcomes of an ingest."""

    def __init__(self) -> None:
        self.stored = self._truncated = self._left = 0
        self.refused: list[str] = []
        self._start_time = time.monotonic()

    def note(self, outcome: IngestOutcome) -> None:
        """Counts an outcome, and prints the first refusals."""
        if outcome.error is None:
            self.stored += 1
            self._truncated += outcome.text_use is not None and outcome.text_use.is_truncated
            return
        self.refused.append(outcome.item_id)
        self._left += may_be_stored_later(outcome.error)
        if len(self.refused) <= _SHOWN_ERROR_COUNT:
            why = f"{outcome.error.reason}: {described(outcome.error)}"
            errors.print(one_line(f"{outcome.item_id or '(no id)'}: {why}"))

    def tell(self, index_id: str, *, is_kept: bool) -> None:
        """Prints the counts."""
        seconds = time.monotonic() - self._start_time
        out.print(
            f"{self.stored:,} items stored, {len(self.refused):,} refused, in {seconds:.1f} s "
            f"({self.stored / seconds:.0f} items/s)"
        )
        if is_kept:
            answer(
                {
                    "index_id": index_id,
                    "stored_count": self.stored,
                    "truncated_count": self._truncated,
                    "refused_ids": self.refused,
                    "left_count": self._left,
                    "seconds": seconds,
                }
            )
        if self._left:
            again = "; run the same command again, which stores them" if is_kept else ""
            errors.print(f"{self._left:,} of the refused were left by a server in trouble{again}")
        if self._truncated:
            out.print(
                f"{self._truncated:,} of them are texts of which the model read only the beginning"
            )


class _ScaledDown:
    """Scales photographs down that no server takes, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yields the records, with smaller pictures where they have to be."""
        for record in records:
            image_bytes = record.image.read()
            sendable = sendable_picture(image_bytes)
            if sendable is image_bytes:
                yield record
            else:
                self.count += 1
                yield replace(record, image=HeldPicture(sendable, str(record.image)))


class _PictureCount:
    """Counts images by their items, in the order of the outcomes."""

    def __init__(self) -> None:
        self.given = 0
        self._item_count = 0
        self._ends: deque[int] = deque()
        self._done = 0

    def of(
        self,
        sent: Iterable[SentRecord],
        with_captions: bool,
        caption_attribute: str | None,
    ) -> Iterator[NewItem]:
        """Yields each image, and optionally its captions, in a thread of gRPC.

        All have the corpus's attributes, the split and the language, an image that of each caption.
        With `caption_attribute` the image has the captions too, as an attribute of that name.
        """
        for record, content in sent:
            self.given += 1
            self._item_count += 1 + (len(record.captions) if with_captions else 0)
            self._ends.append(self._item_count)
            shared = {**record.attributes, "split": record.split}
            languages = sorted({caption.language for caption in record.captions})
            attributes: Attributes = {**shared, "language": tuple(languages)}
            if caption_attribute is not None:
                attributes = {**attributes, caption_attribute: _attribute_captions(record)}
            yield record.record_id, content, attributes
            for caption in record.captions if with_captions else ():
                yield caption.caption_id, caption.text, {**shared, "language": caption.language}

    def done(self, item_count: int) -> int:
        """Returns how many images the first `item_count` items complete."""
        while self._ends and self._ends[0] <= item_count:
            self._ends.popleft()
            self._done += 1
        return self._done


def _attribute_captions(record: Record) -> tuple[str, ...]:
    """Returns the captions that fit into an attribute: the first 64, of at most 1,024 bytes."""
    texts = dict.fromkeys(caption.text for caption in record.captions)
    fitting = [text for text in texts if len(text.encode()) <= MAX_TEXT_BYTES]
    return tuple(fitting[:MAX_TEXTS_COUNT])
