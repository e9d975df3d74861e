"""Without Triton: named errors, quickly; with it again: everything as before."""

import time

import pytest

from tandem.client import NO_RETRIES, Client
from tandem.contract.content import Modality
from tandem.errors import ModelUnavailable
from tandem.stack.stack import LocalStack
from tests.support.local.tiny_stack import TINY_STACK

pytestmark = TINY_STACK


def test_without_triton_calls_fail_by_name_and_nothing_is_lost(tiny_stack: LocalStack) -> None:
    """New queries and ingest say MODEL_UNAVAILABLE, a known query is answered and says so; health
    follows; what was stored is still there.
    """
    with Client(tiny_stack.address, timeout_seconds=60.0) as client:
        assert [o.error for o in client.ingest([("a", "one cat")], index_id="down")] == [None]
        known = client.search("two cats", index_id="down", target_modality=Modality.TEXT)
        assert not known.is_degraded

        tiny_stack.stop_triton()
        start_time = time.monotonic()
        with pytest.raises(ModelUnavailable):
            client.search("one walrus", index_id="down")  # which no other test asks this stack
        with Client(tiny_stack.address, retries=NO_RETRIES) as hasty:
            [outcome] = hasty.ingest([("b", "one otter")], index_id="down")
        assert isinstance(outcome.error, ModelUnavailable)
        again = client.search("two cats", index_id="down", target_modality=Modality.TEXT)
        assert [item.item_id for item in again.items] == ["a"]
        assert again.items == known.items
        assert again.degradations == ("EMBEDDING_CACHED",)
        assert time.monotonic() - start_time < 60  # which one call may take

        tiny_stack.start_triton()
        tiny_stack.wait_until_serving("encoder", time.monotonic() + 120)
        assert client.remove(["a", "b"], index_id="down").removed_count == 1
