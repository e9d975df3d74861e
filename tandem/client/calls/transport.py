"""Defines what carries the calls of `Client`: a connection, or an engine in this process.

Generated from transport.py by `make sync-client`: DO NOT EDIT.
"""

from collections.abc import Generator, Sequence
from typing import Protocol

from tandem.client.calls.retries import Retries
from tandem.client.ingest.batches import IngestBatches
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
from tandem.errors import TandemError


class Transport(Protocol):
    """Carries checked calls, each within its own deadline; raises a TandemError."""

    retries: Retries

    def search(self, query: SearchQuery | PageQuery) -> SearchResult:
        """Returns the answer."""

    def stream(self, query: SearchQuery) -> Generator[SearchResult, None, None]:
        """Yields the answer in bi-encoder order, then the final one."""

    def search_each(
        self, queries: Sequence[SearchQuery | TandemError]
    ) -> list[SearchResult | TandemError]:
        """Returns the outcome of each query; one that is an error stays one."""

    def score_documents(self, query: DocumentQuery) -> ScoredDocuments:
        """Returns each document's score or error."""

    def describe_model(self) -> ModelDescription:
        """Returns the model and its limits."""

    def describe_index(self, index_id: str, *, full_coverage_required: bool) -> IndexDescription:
        """Returns the state of an index."""

    def set_calibrations(self, calibrations: Sequence[ScoreCalibration], index_id: str) -> int:
        """Stores what was measured; returns how many calibrations the index has."""

    def list_indexes(self, after: str, *, full_coverage_required: bool) -> IndexPage:
        """Returns indexes after that id."""

    def ingest(self, batches: IngestBatches) -> Generator[list[IngestOutcome], None, None]:
        """Yields each batch's outcomes, in order."""

    def fetch(self, index_id: str, item_ids: Sequence[str]) -> Sequence[KeptItem]:
        """Returns the items that exist."""

    def list_items(self, asked: ItemListing) -> tuple[Sequence[KeptItem], str]:
        """Returns a page of items, and the token of the next, if there may be more."""

    def change(self, asked: ItemsChange) -> Changes:
        """Changes items."""

    def remove(self, asked: ItemsRemoval) -> Removal:
        """Deletes items."""

    def remove_index(self, index_id: str) -> Removal:
        """Deletes an index, or a part of a large one."""

    def close(self) -> None:
        """Ends calls in flight."""
