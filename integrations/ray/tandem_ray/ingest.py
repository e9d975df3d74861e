"""Stores a Ray dataset in an index of Tandem."""

import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset
from pyarrow.fs import FileSystem
from ray.data import Dataset, TaskPoolStrategy
from ray.data.checkpoint import CheckpointConfig

from tandem.client import IngestOutcome
from tandem.errors import error_from_reason
from tandem_ray.sending import Destination, send

# A task mostly waits for the server.
_CPUS_OF_A_STREAM = 0.25


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a job has done, over all of its runs."""

    stored_count: int
    refused: tuple[IngestOutcome, ...]
    """Each with its error. They are not sent again."""


def ingest(
    dataset: Dataset,
    destination: Destination,
    *,
    state: str,
    stream_count: int = 4,
    rows_per_task: int = 512,
) -> IngestReport:
    """Stores every row of a dataset that is read from files, and returns the outcomes of all.

    `state` is a folder, or a URI that pyarrow opens, which all of Ray's nodes reach. It keeps by
    index what has an outcome: another run sends only the rest. `stream_count` tasks of
    `rows_per_task` rows send at once. Raises ray.exceptions.RayTaskError; a run after it continues.
    """
    state = absolute(state)
    outcomes = f"{state}/{destination.index_id}/outcomes"
    dataset.context.checkpoint_config = CheckpointConfig(
        destination.id_column,
        f"{state}/{destination.index_id}/checkpoint",
        delete_checkpoint_on_success=False,
    )
    tasks = dataset.repartition(target_num_rows_per_block=rows_per_task)
    tasks.map_batches(
        partial(send, destination=destination, run_id=uuid.uuid4().hex),
        batch_size=None,
        batch_format="pyarrow",
        compute=TaskPoolStrategy(size=stream_count),
        num_cpus=_CPUS_OF_A_STREAM,
    ).write_parquet(outcomes)
    return _report(outcomes)


def absolute(place: str) -> str:
    """Returns a folder's whole path, since Ray's workers have other folders; a URI as it is."""
    return place if "://" in place else str(Path(place).resolve())


def _report(outcomes: str) -> IngestReport:
    filesystem, path = FileSystem.from_uri(outcomes)
    written = pa_dataset.dataset(path, filesystem=filesystem, format="parquet")
    is_stored = pc.field("reason").is_null()
    refused = tuple(
        IngestOutcome(row["item"], error_from_reason(row["reason"], row["message"], {}))
        for row in written.to_table(filter=~is_stored).to_pylist()
    )
    return IngestReport(written.count_rows(filter=is_stored), refused)
