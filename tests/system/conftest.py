"""One stack of real processes for all system tests: Triton with the shipped model, two shards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tandem.client import Client
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.manifest import IMAGE_BACKBONE
from tandem.model_io.repository.precision import native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.stack.stack import LocalStack, Ports
from tests.support.group_end import at_group_end
from tests.support.triton.tiny_triton import with_lone_instances

SCENE_COUNT = 60
_GROUP = "system"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps tests with the shipped model on one worker: they share a stack that fills two cores."""
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):  # of 9,000 in each worker; pathlib takes ten times that
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(_GROUP))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def model_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model, exported as a user's first start would."""
    # Workers share the cores, and torch's threads wait for one another.
    torch.set_num_threads(1)
    repository = tmp_path_factory.mktemp("system") / "model_repository"
    export_model(default_checkpoint(), repository, native_precision())
    return repository


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, model_repository: Path) -> Iterator[LocalStack]:
    """Every process, serving. Searches load both instances of the joint encoder alone."""
    data_folder, folder = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("served")
    repository = with_lone_instances(model_repository, folder / "models", IMAGE_BACKBONE)
    with LocalStack(data_folder, repository, Ports.free(shard_count=2)) as running:
        running.start()
        at_group_end(_GROUP, running.stop)
        yield running


@pytest.fixture
def client(stack: LocalStack) -> Iterator[Client]:
    """A user's connection."""
    with Client(stack.address, timeout_seconds=30.0) as connected:
        yield connected


@pytest.fixture(scope="session")
def records() -> list[Record]:
    """Held-out scenes: fifteen families of four."""
    return list(scene_records("test", 7, SCENE_COUNT))


@pytest.fixture(scope="session")
def scenes_index(stack: LocalStack, records: list[Record]) -> str:
    """An index with the records' pictures and English captions."""
    items: list[tuple[str, str | bytes]] = []
    for record in records:
        items.append((record.record_id, record.image.read()))
        items += [(c.caption_id, c.text) for c in record.captions if c.language == "en"]
    with Client(stack.address, timeout_seconds=30.0) as client:
        assert all(outcome.error is None for outcome in client.ingest(items, index_id="scenes"))
    return "scenes"
