"""The SDK for programs without an event loop.

Generated from client.py by `make sync-client`: DO NOT EDIT.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from typing_extensions import Self, Unpack

from tandem.client.access import Access
from tandem.client.arguments import (
    checked_integer,
    checked_timeout_seconds,
    checked_type,
)
from tandem.client.calls.remote import Remote
from tandem.client.calls.retries import DEFAULT_RETRIES, RetryPolicy
from tandem.client.calls.transport import Transport
from tandem.client.changes import (
    NewPatch,
    PatchBatches,
    Selected,
    checked_ids,
    checked_patch,
    continued,
    item_selection,
    joined,
)
from tandem.client.ingest.batches import IngestBatches
from tandem.client.ingest.rounds import IngestProgress, IngestRounds, ProgressCounter
from tandem.client.item import NewAttributes, NewContent, NewItem
from tandem.client.query import (
    NewDocument,
    Query,
    Search,
    checked_searches,
    document_query,
    search_query,
)
from tandem.client.search_options import takes_options
from tandem.client.sendable import checked_request_id
from tandem.contract.content import TruncationPolicy
from tandem.contract.identifiers import check_index_id
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.answer import IngestOutcome, Removal, SearchResult
from tandem.contract.search.documents import ScoredDocuments
from tandem.contract.search.indexes import IndexDescription, IndexListing
from tandem.contract.search.item_changes import (
    Changes,
    ItemListing,
    ItemPatch,
    ItemsChange,
    ItemsRemoval,
    KeptItem,
)
from tandem.contract.search.query import PageQuery, SearchOptions
from tandem.contract.search.score_calibration import ScoreCalibration
from tandem.errors import AnswerTooLarge, TandemError


class Client:
    """Calls Tandem over one connection. Close it, or use it in a with statement."""

    def __init__(
        self,
        address: str,
        timeout_seconds: float = 10.0,
        access: Access | None = None,
        *,
        retries: RetryPolicy = DEFAULT_RETRIES,
    ) -> None:
        """Connects with the first call to an orchestrator at `address`, a host:port.

        `timeout_seconds` is the deadline of each call but `ingest`, which has none. `access` holds
        token and certificates; by default the client uses plain text and no token. `retries` says
        how often a failed call is repeated within its deadline; see `RetryPolicy`.
        """
        seconds = checked_timeout_seconds(timeout_seconds)
        self._transport: Transport = Remote(address, seconds, access or Access(), retries)

    @takes_options
    def search(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Returns the items that match a query, best first.

        The query is a text, the bytes of an image, a StoredItem, a GivenEncoding, or a list of
        QueryParts. An answer can be degraded: `result.degradations` lists how, `coverage` and
        `rerank` how far. Contents that are too large for one answer come in several, which are put
        together. Raises a TandemError.
        """
        asked = search_query(query, index_id=index_id, **options)
        try:
            return self._transport.search(asked)
        except AnswerTooLarge:
            if asked.depth.return_n == 1:
                raise
        one = replace(asked, depth=replace(asked.depth, return_n=1))
        result = self._transport.search(one)
        included = {"content_included": True, "attributes_included": asked.attributes_included}
        while (cursor := result.next_cursor) and len(result.items) < asked.depth.return_n:
            page = self.search_page(cursor, index_id=index_id, **included)
            items = (*result.items, *page.items)
            result = replace(result, items=items, next_cursor=page.next_cursor)
        return result

    def search_page(
        self,
        cursor: bytes,
        *,
        index_id: str,
        return_n: int | None = None,
        content_included: bool = False,
        attributes_included: bool = False,
    ) -> SearchResult:
        """Returns the items after those of the answer with this `next_cursor`.

        They keep the ranking of that search, whatever changed since; a deleted item has no content.
        By default the page has as many items as that search. Raises CursorInvalid.
        """
        page = PageQuery(
            cursor=checked_type("cursor", cursor, bytes, "send the next_cursor of an answer"),
            index_id=check_index_id(index_id),
            return_n=None if return_n is None else checked_integer("return_n", return_n),
            content_included=content_included,
            attributes_included=attributes_included,
        )
        return self._transport.search(page)

    @takes_options
    def search_stream(
        self, query: Query, *, index_id: str, **options: Unpack[SearchOptions]
    ) -> Iterator[SearchResult]:
        """Yields two answers: bi-encoder order at once, then the answer of `search`.

        Takes what `search` takes. Leaving the iteration early cancels the rerank.
        """
        answers = self._transport.stream(search_query(query, index_id=index_id, **options))
        try:
            yield from answers
        finally:
            answers.close()

    def search_batch(self, searches: Iterable[Search]) -> list[SearchResult | TandemError]:
        """Returns the outcome of each of at most 64 searches: its answer or its error.

        The searches share batches of encoding and reranking. Raises if the whole call fails.
        """
        return self._transport.search_each(checked_searches(searches))

    def score_documents(
        self,
        query: NewContent,
        documents: Sequence[NewDocument],
        *,
        index_id: str = "",
        truncation_policy: TruncationPolicy | str = TruncationPolicy.ERROR,
    ) -> ScoredDocuments:
        """Returns how well each of at most 200 documents matches the query, in their order.

        A document is a text, the bytes of an image, or a StoredItem of the index. The cross-encoder
        scores those of the other modality than the query; texts for a text and images for an image
        have a similarity instead, two texts with its probability where the model has a calibration.
        A document that fails has an error in its place. Raises a TandemError.
        """
        asked = document_query(query, documents, index_id, truncation_policy)
        return self._transport.score_documents(asked)

    def describe_model(self) -> ModelDescription:
        """Returns the model and its limits."""
        return self._transport.describe_model()

    def describe_index(
        self, *, index_id: str, full_coverage_required: bool = False
    ) -> IndexDescription:
        """Returns the state of an index: its items, what searches them, and their live recall.

        A shard that does not answer is left out, and `coverage` says so; with
        `full_coverage_required` ShardsMissing is raised instead. Raises IndexNotFound.
        """
        return self._transport.describe_index(
            check_index_id(index_id), full_coverage_required=full_coverage_required
        )

    def list_indexes(self, *, full_coverage_required: bool = False) -> IndexListing:
        """Returns the indexes that this client may search, with their items.

        Items of a shard that does not answer are left out, and `missing_shards` says so; with
        `full_coverage_required` ShardsMissing is raised instead.
        """
        listing, after = IndexListing(()), ""
        while True:
            page = self._transport.list_indexes(
                after, full_coverage_required=full_coverage_required
            )
            listing = IndexListing(
                (*listing.indexes, *page.indexes),
                {**listing.missing_shards, **page.missing_shards},
            )
            if not (after := page.last):
                return listing

    def set_calibrations(self, calibrations: Iterable[ScoreCalibration], *, index_id: str) -> int:
        """Says what the scores of an index mean, as `tandem calibrate` does after measuring it.

        Each takes the place of the one of its scorer and direction. Returns how many the index has.
        Raises IndexNotFound, and RequestMalformed for numbers that are not finite.
        """
        return self._transport.set_calibrations(list(calibrations), check_index_id(index_id))

    def ingest(
        self,
        items: Iterable[NewItem],
        *,
        index_id: str,
        batch_item_count: int = 32,
        request_id: str = "",
        truncation_policy: TruncationPolicy | str = TruncationPolicy.ERROR,
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> Iterator[IngestOutcome]:
        """Stores items, and yields each one's outcome in order.

        An item is an `Item`, (item id, content) or (item id, content, attributes). A refused item
        does not stop the others. The client reads `items` only as fast as the server accepts them.
        Raises a TandemError if the stream fails; items yielded without an error by then are stored.

        Items that the server could not take because it was busy or unavailable are sent again, as
        `retries` says, and yielded later; nothing new is read meanwhile. Under a `request_id`,
        which stands for batches as they are, they are refused at once.

        `batch_item_count` items, at most 64, are sent together and answered together.

        `truncation_policy`: a text over the model's limit is refused (TextTooLong), or truncated
        with TruncationPolicy.TRUNCATE; `text_use` of its outcome says how much was read.

        `progress` is called with the counts after each batch, before its outcomes are yielded; what
        it raises ends the ingest.

        A `request_id` of at most 50 bytes makes a retry with the same items safe: stored items are
        not stored again.
        """
        retries = self._transport.retries
        rounds = IngestRounds(items, retries, batch_item_count, is_repeatable=not request_id)
        counter = ProgressCounter(items, progress)
        delay_seconds: float | None = 0.0
        while delay_seconds is not None:
            time.sleep(delay_seconds)
            size = rounds.batch_item_count
            batches = IngestBatches(rounds, index_id, size, request_id, truncation_policy)
            answers = self._transport.ingest(batches)
            try:
                for answered in answers:
                    outcomes = rounds.final(answered)
                    counter.note(outcomes, rounds.waiting_count)
                    yield from outcomes
            finally:
                # If the caller stops early, nothing may continue to read `items`.
                answers.close()
            delay_seconds = rounds.delay_seconds()

    def list_items(
        self, *, index_id: str, attributes_included: bool = False, **selection: Unpack[Selected]
    ) -> Iterator[KeptItem]:
        """Yields the items of an index without their contents, in byte order of their ids.

        `where`, `id_prefix` and `id_glob` select some: those that fit all that is set. Raises
        IndexNotFound.

        Iterate over it with `for`.
        """
        asked = ItemListing(
            index_id=check_index_id(index_id),
            page_size=MAX_PAGE_SIZE,
            selection=item_selection(selection) if selection else None,
            attributes_included=attributes_included,
        )
        while True:
            items, token = self._transport.list_items(asked)
            yield from items
            if not token:
                return
            asked = replace(asked, page_token=token)

    def fetch_items(self, item_ids: Iterable[str], *, index_id: str) -> list[KeptItem]:
        """Returns the items that exist with contents and attributes, in the order of the ids.

        At most 256. Raises IndexNotFound, and AnswerTooLarge for over 48 MiB.
        """
        return list(self._transport.fetch(check_index_id(index_id), checked_ids(item_ids)))

    def change(
        self, patches: Iterable[NewPatch], *, index_id: str, request_id: str = ""
    ) -> Changes:
        """Changes attributes of items, and copies items, without sending or encoding contents.

        A patch is an `ItemPatch` or (item id, attributes): those that it names are set, and the
        others stay; None as a value removes one. Any number of patches is sent, as many at a time
        as fit into a message, at most 1,000.
        An item that cannot be changed is among the `failures` and stops no other. Raises a
        TandemError if a call fails; what was changed by then stays.

        A `request_id` of at most 50 bytes makes a repetition with the same patches safe.
        """
        batches, changes = PatchBatches(patches, index_id, request_id), Changes()
        for batch in batches:
            batch = replace(batch, consistency_token=changes.consistency_token)
            changes = joined(changes, self._transport.change(batch))
        return replace(changes, failures=(*batches.failures, *changes.failures))

    def change_selected(
        self,
        attributes: NewAttributes,
        *,
        index_id: str,
        attributes_replaced: bool = False,
        dry_run: bool = False,
        **selection: Unpack[Selected],
    ) -> Changes:
        """Sets attributes of all items that `where`, `id_prefix` and `id_glob` select.

        As `change` does. `dry_run` changes nothing, and counts the items.
        """
        patch = checked_patch(ItemPatch("", attributes, attributes_replaced=attributes_replaced))
        asked = ItemsChange(
            index_id=check_index_id(index_id),
            selection=item_selection(selection),
            dry_run=dry_run,
            patches=[patch],
        )
        changes = self._transport.change(asked)
        while changes.next_page_token:
            further = self._transport.change(continued(asked, changes))
            changes = joined(changes, further)
        return changes

    def remove(self, item_ids: Iterable[str], *, index_id: str, request_id: str = "") -> Removal:
        """Deletes items by id, and returns how many existed.

        If a shard fails, raises a TandemError whose message says which items were deleted. A retry
        with the same `request_id`, at most 64 bytes, gets the first answer.
        """
        return self._transport.remove(
            ItemsRemoval(
                index_id=check_index_id(index_id),
                item_ids=checked_ids(item_ids),
                request_id=checked_request_id(request_id),
            )
        )

    def remove_selected(
        self, *, index_id: str, dry_run: bool = False, **selection: Unpack[Selected]
    ) -> Removal:
        """Deletes all items that `where`, `id_prefix` and `id_glob` select, and counts them.

        `dry_run` deletes nothing. Raises a TandemError if a call fails; what was deleted by then
        is gone.
        """
        asked = ItemsRemoval(
            index_id=check_index_id(index_id), selection=item_selection(selection), dry_run=dry_run
        )
        removal = self._transport.remove(asked)
        while removal.next_page_token:
            further = self._transport.remove(continued(asked, removal))
            count = removal.removed_count + further.removed_count
            removal = replace(further, removed_count=count, item_ids=removal.item_ids)
        return removal

    def remove_index(self, *, index_id: str) -> Removal:
        """Deletes an index: all of its items, or a part of a large index.

        Repeat the call until `is_complete`. Raises IndexNotFound, and, if a shard fails, a
        TandemError whose message says how much was deleted.
        """
        return self._transport.remove_index(check_index_id(index_id))

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
