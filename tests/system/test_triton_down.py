"""Without Triton: named errors, quickly; with it again: everything as before."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.client import Client
from tandem.contract.content import Modality
from tandem.errors import ModelUnavailable
from tandem.local.stack import LocalStack, Ports


@pytest.fixture(scope="module")
def own_stack(
    tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path
) -> Iterator[LocalStack]:
    """A stack whose Triton these tests may stop."""
    data_folder = tmp_path_factory.mktemp("triton-down")
    with LocalStack(data_folder, tiny_repository, Ports.free(shard_count=1)) as running:
        running.start()
        yield running


def test_without_triton_calls_fail_by_name_and_nothing_is_lost(own_stack: LocalStack) -> None:
    """New queries and ingest say MODEL_UNAVAILABLE, a known query is answered and says so; health
    follows; what was stored is still there.
    """
    with Client(own_stack.address, timeout_seconds=10.0) as client:
        assert [o.error for o in client.ingest([("a", "one cat")], index_id="down")] == [None]
        known = client.search("two cats", index_id="down", target_modality=Modality.TEXT)
        assert not known.is_degraded

        own_stack.stop_triton()
        start_time = time.monotonic()
        with pytest.raises(ModelUnavailable):
            client.search("one cat", index_id="down")
        [outcome] = client.ingest([("b", "one dog")], index_id="down")
        assert isinstance(outcome.error, ModelUnavailable)
        again = client.search("two cats", index_id="down", target_modality=Modality.TEXT)
        assert [item.item_id for item in again.items] == ["a"]
        assert again.items == known.items
        assert again.degradations == ("EMBEDDING_CACHED",)
        assert time.monotonic() - start_time < 10  # which one call may take

        own_stack.start_triton()
        own_stack.wait_until_serving("encoder", time.monotonic() + 120)
        assert client.remove(["a", "b"], index_id="down").removed_count == 1
