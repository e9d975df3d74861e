"""Ingests items with progress, and reports errors item by item."""

import time
from collections.abc import Iterable
from contextlib import nullcontext

from tandem.cli.command_line import report_if_interrupted
from tandem.cli.ingest.sent_items import SentItems
from tandem.cli.refusals import described
from tandem.cli.terminal.console import errors, one_line, out
from tandem.cli.terminal.json_answer import answer, event
from tandem.cli.terminal.progress import LongWork
from tandem.client import Client, IngestOutcome, IngestProgress, NewItem, TruncationPolicy
from tandem.client.ingest.rounds import may_be_stored_later

_SHOWN_ERROR_COUNT = 10


def ingest_items(
    client: Client,
    index_id: str,
    items: Iterable[NewItem],
    total: int | None,
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    *,
    sent: SentItems | None = None,
    counts: "Counts | None" = None,
    is_kept: bool = True,
    unit: str = "items",
) -> list[str]:
    """Ingests with a progress bar; prints the counts, and returns the ids of refused items.

    The bar counts to `total` in that unit, as `sent` does if that yields the items: it is given
    each outcome. It also prints the number of truncated texts, and how many items a server in
    trouble left over. `counts` are of what was ingested before.
    """
    stage, counts = f"ingest into {index_id}", Counts() if counts is None else counts
    has_waited, done_count, batch_end = False, 0, 0

    def show(progress: IngestProgress) -> None:
        nonlocal has_waited, batch_end
        batch_end = progress.done_count
        note = ""
        if progress.waiting_count:
            note = f"{progress.waiting_count:,} items wait for the server"
            if not has_waited:
                work.say("the server is busy or restarts: what it cannot take now is sent again")
            has_waited = True
        count = progress.done_count
        if sent is not None:
            sent.note_progress(progress)
            count = sent.done_count
            event("progress", {"done_count": count, "total_count": total})
        work.show(stage, count, note=note)

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
                done_count += 1
                if sent is not None:
                    sent.note(outcome, is_last=done_count == batch_end)
        finally:
            if sent is not None:
                sent.end()
                work.show(stage, sent.done_count)
    counts.tell(index_id, is_kept=is_kept)
    return counts.refused


class Counts:
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
        if self._left:
            again = "; run the same command again, which stores them" if is_kept else ""
            errors.print(f"{self._left:,} of the refused were left by a server in trouble{again}")
        if self._truncated:
            out.print(
                f"{self._truncated:,} of them are texts of which the model read only the beginning"
            )

    def answer(self, index_id: str) -> None:
        """Prints the counts as JSON, if `--json` is given."""
        answer(
            {
                "index_id": index_id,
                "stored_count": self.stored,
                "truncated_count": self._truncated,
                "refused_ids": self.refused,
                "left_count": self._left,
                "seconds": time.monotonic() - self._start_time,
            }
        )
