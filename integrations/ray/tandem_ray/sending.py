"""Sends the rows of one Ray task to Tandem, and returns their outcomes as a table."""

import hashlib
import logging
import random
import time
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from tandem.client import Access, Client, IngestOutcome
from tandem.errors import DeadlineExceeded, Overloaded, QuotaExceeded, TandemError

_PAUSE_SECONDS = 1.0, 5.0

# Id, content and attributes, which the client checks.
_Item: TypeAlias = tuple[str, Any, dict[str, Any]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where rows go, and which of their columns are what; travels to every Ray task."""

    address: str
    """host:port of an orchestrator, as Ray's nodes reach it."""
    index_id: str
    id_column: str = "id"
    """Names a row where a run resumes: unique, and a column of the source itself."""
    item_id_column: str | None = None
    """The items' ids, if they are not those of `id_column`."""
    content_column: str = "content"
    """A text, or the bytes of a JPEG, PNG or WebP file. All other columns are attributes."""
    access: Access = field(default_factory=Access.from_environment, repr=False)
    """Token and certificates."""
    wait_seconds: float = 300.0
    """How long a task waits for a server that is away or busy before it fails."""


def send(rows: pa.Table, destination: Destination, run_id: str) -> pa.Table:
    """Stores the rows; returns the id, item id, and reason and message of refusal of each.

    The request id follows from run and rows, so that a task which Ray repeats stores nothing
    twice. Raises the server's error if it is away for longer than `wait_seconds`.
    """
    items = _items(rows, destination)
    outcomes = _outcomes(items, _request_id(items, run_id), destination)
    errors = [each.error for each in outcomes]
    return pa.table(
        {
            destination.id_column: rows[destination.id_column],
            "item": pa.array([each.item_id for each in outcomes], pa.string()),
            "reason": pa.array([each and each.reason for each in errors], pa.string()),
            "message": pa.array([each and each.message for each in errors], pa.string()),
        }
    )


def _items(rows: pa.Table, destination: Destination) -> list[_Item]:
    items = []
    for row in rows.to_pylist():
        row_id, content = row.pop(destination.id_column), row.pop(destination.content_column)
        item_id = row.pop(destination.item_id_column) if destination.item_id_column else row_id
        given = {name: value for name, value in row.items() if value is not None}
        items.append((str(item_id), content, given))
    return items


def _request_id(items: list[_Item], run_id: str) -> str:
    digest = hashlib.blake2b(run_id.encode(), digest_size=16)
    for item_id, content, attributes in items:
        digest.update(repr((item_id, attributes)).encode())
        digest.update(content.encode() if isinstance(content, str) else content or b"")
    return digest.hexdigest()


def _outcomes(items: list[_Item], request_id: str, place: Destination) -> list[IngestOutcome]:
    """Sends items until the server says of each that it is stored or refused for what it is."""
    give_up_time = time.monotonic() + place.wait_seconds
    with Client(place.address, access=place.access) as client:
        while True:
            try:
                sent = client.ingest(items, index_id=place.index_id, request_id=request_id)
                outcomes = list(sent)
                failure = next((each.error for each in outcomes if _passes(each.error)), None)
            except TandemError as error:
                failure = error
            if failure is None:
                return outcomes
            if not _passes(failure) or time.monotonic() > give_up_time:
                raise failure
            _log.warning("sending %d rows again: %s", len(items), failure)
            # All tasks lose one server together, and come back one by one.
            time.sleep(random.uniform(*_PAUSE_SECONDS))


def _passes(error: TandemError | None) -> bool:
    passing = (DeadlineExceeded, Overloaded, QuotaExceeded)
    return isinstance(error, passing) or (error is not None and error.status == "UNAVAILABLE")
