"""Stores pictures in an index, of which a benchmark needs every one."""

from collections.abc import Iterable

from tandem.client import Client
from tandem.corpus.records import Record


def store_pictures(address: str, index_id: str, records: Iterable[Record]) -> None:
    """Ingests the records' pictures by their ids; raises the error of the first refusal."""
    pictures = ((record.record_id, record.image.read()) for record in records)
    with Client(address, timeout_seconds=60.0) as client:
        for outcome in client.ingest(pictures, index_id=index_id):
            if outcome.error is not None:
                raise outcome.error
