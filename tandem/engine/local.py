"""Carries the calls of an engine to the orchestrator of this process.

Generated from async_local.py by `make sync-client`: DO NOT EDIT.
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

from tandem.client.calls.retries import DEFAULT_RETRIES, Retries
from tandem.client.ingest.batches import IngestBatches, SentBatches
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.answer import IngestOutcome, Removal, SearchResult
from tandem.contract.search.documents import DocumentQuery, ScoredDocuments
from tandem.contract.search.indexes import IndexDescription, IndexPage
from tandem.contract.search.item_changes import (
    Changes,
    ItemListing,
    ItemsChange,
    ItemsRemoval,
    KeptItem,
)
from tandem.contract.search.query import PageQuery, SearchQuery
from tandem.contract.search.score_calibration import ScoreCalibration
from tandem.engine.answer_pump import AnswerPump, read_aside
from tandem.engine.in_loop import (
    Call,
    StreamedCall,
    answers_in_time,
    in_time,
)
from tandem.engine.open_folder import OpenFolder
from tandem.errors import TandemError
from tandem.stages.items import ItemsQuery

T = TypeVar("T")


class Local:
    """Calls the orchestrator of a folder in its own event loop, once the model is loaded."""

    def __init__(self, folder: OpenFolder, timeout_seconds: float) -> None:
        """The wait for the model is not part of a call's time."""
        self.retries = Retries(DEFAULT_RETRIES)
        self._folder = folder
        self._timeout_seconds = timeout_seconds

    def search(self, query: SearchQuery | PageQuery) -> SearchResult:
        """Returns the answer."""
        if isinstance(query, PageQuery):
            return self._answer(lambda own, deadline: own.page(query, deadline))
        return self._answer(lambda own, deadline: own.search(query, deadline))

    def stream(self, query: SearchQuery) -> Generator[SearchResult, None, None]:
        """Yields the answer in bi-encoder order, then the final one."""
        seconds = self._timeout_seconds
        answers = self._answers(lambda own: answers_in_time(own, query, seconds))
        try:
            yield from answers
        finally:
            answers.close()

    def search_each(
        self, queries: Sequence[SearchQuery | TandemError]
    ) -> list[SearchResult | TandemError]:
        """Returns the outcome of each query; one that is an error stays one."""
        return list(self._answer(lambda own, deadline: own.search_each(queries, deadline)))

    def score_documents(self, query: DocumentQuery) -> ScoredDocuments:
        """Returns each document's score or error."""
        return self._answer(lambda own, deadline: own.score_documents(query, deadline))

    def describe_model(self) -> ModelDescription:
        """Returns the model and its limits."""
        return self._answer(lambda own, deadline: own.describe_model(deadline))

    def describe_index(self, index_id: str, *, full_coverage_required: bool) -> IndexDescription:
        """Returns the state of an index."""
        return self._answer(
            lambda own, deadline: own.describe_index(
                index_id, deadline, full_coverage_required=full_coverage_required
            )
        )

    def list_indexes(self, after: str, *, full_coverage_required: bool) -> IndexPage:
        """Returns indexes after that id."""
        return self._answer(
            lambda own, deadline: own.index_list.page(
                after, MAX_PAGE_SIZE, deadline, full_coverage_required=full_coverage_required
            )
        )

    def set_calibrations(self, calibrations: Sequence[ScoreCalibration], index_id: str) -> int:
        """Stores what was measured."""
        return self._answer(
            lambda own, deadline: own.set_calibrations(index_id, calibrations, deadline)
        )

    def ingest(self, batches: IngestBatches) -> Generator[list[IngestOutcome], None, None]:
        """Yields each batch's outcomes, in order; a thread of its own reads the batches."""
        sent = SentBatches(batches, "this engine")
        answers = self._answers(lambda own: own.ingest_stream.answers(read_aside(iter(sent))))
        try:
            for outcomes in answers:
                yield sent.outcomes(outcomes)
        finally:
            answers.close()

    def fetch(self, index_id: str, item_ids: Sequence[str]) -> Sequence[KeptItem]:
        """Returns the items that exist."""
        asked = ItemsQuery(index_id, item_ids)
        found = self._answer(lambda own, end: own.fetch_items(asked, end))
        return [KeptItem(i, found[i].content, found[i].attributes) for i in item_ids if i in found]

    def list_items(self, asked: ItemListing) -> tuple[Sequence[KeptItem], str]:
        """Returns a page of items, and the token of the next, if there may be more."""
        return self._answer(lambda own, deadline: own.list_items(asked, deadline))

    def change(self, asked: ItemsChange) -> Changes:
        """Changes items."""
        return self._answer(lambda own, deadline: own.change(asked, deadline))

    def remove(self, asked: ItemsRemoval) -> Removal:
        """Deletes items."""
        return self._answer(lambda own, deadline: own.remove(asked, deadline))

    def remove_index(self, index_id: str) -> Removal:
        """Deletes an index, or a part of a large one."""
        return self._answer(lambda own, deadline: own.remove_index(index_id, deadline))

    def close(self) -> None:
        """Does nothing: the folder outlives its calls."""

    def _answer(self, call: Call[T]) -> T:
        self._folder.wait_until_ready()
        return self._folder.thread.run(
            in_time(call, self._folder.orchestrator, self._timeout_seconds)
        )

    def _answers(self, call: StreamedCall[T]) -> Generator[T, None, None]:
        self._folder.wait_until_ready()
        pump = AnswerPump(call(self._folder.orchestrator))
        try:
            while (answer := self._folder.thread.run(pump.next())) is not None:
                yield answer
        finally:
            pump.cancel(self._folder.thread.loop)
