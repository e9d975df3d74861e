"""Measures changes of attributes through the SDK, of items as the bundled model makes them.

    tandem up --shards 1 --data FOLDER &
    python -m benchmarks.bench.item_changes [--count N] [--address A] [--shard-address A]

Fills an index of pictures of 8 KB with made encodings by the shard's own call, without the model,
and then sets two attributes of each by id, one by a filter, copies and removes a tenth, and lists
all. Prints rows a second, each in the order of time; nothing is encoded meanwhile, which the
encoder's metric of the caller's Prometheus tells.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import numpy as np

from tandem.client import Client, ItemPatch
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.attribute_pb2 import AttributeValue
from tandem.v1.index_service_pb2_grpc import IndexServiceStub

INDEX = "item-changes"
_BATCH_COUNT = 200
_PICTURE_BYTES = 8_192
_TOKENS_SHAPE = (49, 192)


def fill(shard_address: str, fingerprint: str, dimension: int, count: int) -> None:
    """Stores items with made pictures and encodings."""
    chance = np.random.default_rng(1)
    with grpc.insecure_channel(shard_address) as channel:
        stub = IndexServiceStub(channel)
        for start in range(0, count, _BATCH_COUNT):
            items = []
            for number in range(start, min(start + _BATCH_COUNT, count)):
                vector = chance.standard_normal(dimension).astype("<f4")
                tokens = chance.standard_normal(_TOKENS_SHAPE).astype("<f2")
                items.append(
                    pb.EncodedItem(
                        item_id=f"sku/{number:06d}",
                        content=content_pb2.Content(image=chance.bytes(_PICTURE_BYTES)),
                        embedding=content_pb2.Embedding(
                            values=(vector / np.linalg.norm(vector)).tobytes()
                        ),
                        tokens=content_pb2.ContentTokens(
                            image=content_pb2.ImageTokens(
                                values=tokens.tobytes(),
                                token_count=_TOKENS_SHAPE[0],
                                width=_TOKENS_SHAPE[1],
                            )
                        ),
                        attributes={
                            "sku": AttributeValue(integer=number),
                            "brand": AttributeValue(text=f"brand {number % 97}"),
                            "price": AttributeValue(real=1.5),
                        },
                    )
                )
            stub.UpsertItems(
                pb.UpsertItemsRequest(index_id=INDEX, model_fingerprint=fingerprint, items=items)
            )


@contextmanager
def timed(what: str, count: int) -> Iterator[None]:
    """Prints how many rows a second the block did."""
    start_time = time.perf_counter()
    yield
    seconds = time.perf_counter() - start_time
    print(f"{what}: {count:,} in {seconds:.2f} s, {count / seconds:,.0f} a second", flush=True)


def main() -> None:
    """Measures once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--address", default="127.0.0.1:7400")
    parser.add_argument("--shard-address", default="127.0.0.1:7420")
    asked = parser.parse_args()
    count = asked.count
    with Client(asked.address, timeout_seconds=60.0) as client:
        model = client.describe_model()
        with timed("filled", count):
            fill(asked.shard_address, model.fingerprint, model.embedding_dimension, count)
        for round_number in range(2):
            prices = [
                (f"sku/{number:06d}", {"price": number / 100 + round_number, "stock": number % 5})
                for number in range(count)
            ]
            with timed("changed by id", count):
                changes = client.change(prices, index_id=INDEX)
            assert (changes.changed_count, changes.failures) == (count, ())
        with timed("changed to the same", count):
            client.change(prices, index_id=INDEX)
        with timed("changed by a filter", count * 4 // 5):
            client.change_selected({"sold": False}, index_id=INDEX, where="stock >= 1")
        tenth = [f"sku/{number:06d}" for number in range(0, count, 10)]
        with timed("copied", len(tenth)):
            copies = [ItemPatch(f"new/{each}", copied_from_item_id=each) for each in tenth]
            changes = client.change(copies, index_id=INDEX)
        assert (changes.changed_count, changes.failures) == (len(tenth), ())
        with timed("removed by a pattern", len(tenth)):
            assert client.remove_selected(index_id=INDEX, id_glob="new/*").removed_count == len(
                tenth
            )
        with timed("listed with attributes", count):
            listed = list(client.list_items(index_id=INDEX, attributes_included=True))
        assert [each.attributes["price"] for each in listed[:2]] == [1.0, 1.01]
        client.remove_index(index_id=INDEX)


if __name__ == "__main__":
    main()
