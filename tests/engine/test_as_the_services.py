"""An engine and the services answer every form of search alike, each from the other's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tandem import Engine
from tandem.client import Client, Item
from tandem.model_io.repository.manifest import Manifest
from tandem.stack.stack import LocalStack, Ports
from tandem.stack.start_refused import StartRefused
from tests.support.client.search_forms import INDEX, NORMALISED, assert_same, forms, said
from tests.support.pictures.pictures import encoded, noise
from tests.support.triton.tiny_triton import Serving

TEXT = "two dogs left of one umbrella"
WORDS = ("dogs", "umbrella", "cat", "cars", "tree", "stars")
TOLERANCE = 1e-6
# The logits of random weights differ by hundredths, and are divided by that.
NORMALISED_TOLERANCE = 1e-4


def items(first: int, count: int) -> list[Item]:
    """Returns so many pictures and texts with attributes, numbered from `first`."""
    numbers = range(first, first + count)
    colours = ("red", "green", "blue")
    pictures = [
        Item(
            f"picture-{n}",
            image=encoded(noise(n), "PNG"),
            attributes={"colour": colours[n % 3], "number": n},
        )
        for n in numbers
    ]
    texts = [
        Item(f"text-{n}", text=f"{n} {WORDS[n % 6]} left of one {WORDS[n % 5]}") for n in numbers
    ]
    return [*pictures, *texts]


def answers(client: Client, manifest: Manifest) -> Mapping[str, Any]:
    """Returns what every form of search says."""
    picture = encoded(noise(3), "PNG")
    asked = forms(TEXT, picture, "picture-4", manifest)
    return {name: said(ask(client)) for name, ask in asked.items()}


def stored(client: Client, given: list[Item]) -> None:
    """Stores the items."""
    assert all(each.error is None for each in client.ingest(given, index_id=INDEX))


class Services(LocalStack):
    """Calls the Triton that the session shares, and so starts none."""

    def start_triton(self) -> None: ...


@pytest.mark.timeout(600)
def test_each_answers_from_the_folder_of_the_other(
    tmp_path: Path, tiny_repository: Path, shared_triton: Serving, tiny_manifest: Manifest
) -> None:
    """The engine writes, the services read and write on, the engine reads again; two shards."""
    with Engine(tmp_path, model=tiny_repository, shards=2) as engine:
        stored(engine, items(0, 9))
        own = answers(engine, tiny_manifest)

    ports = replace(Ports.free(shard_count=2), triton=shared_triton.grpc_port)
    with Services(tmp_path, tiny_repository, ports) as stack:
        stack.start()
        with Client(stack.address, timeout_seconds=60.0) as client:
            served = answers(client, tiny_manifest)
            stored(client, items(9, 3))
            client.remove(["picture-0", "text-1"], index_id=INDEX)
            later = answers(client, tiny_manifest)
        with pytest.raises(StartRefused, match=r"shard-0 has a writer already, process \d+"):
            Engine(tmp_path, model=tiny_repository)

    with Engine(tmp_path, model=tiny_repository) as again:
        reread = answers(again, tiny_manifest)

    for name, answer in served.items():
        tolerance = NORMALISED_TOLERANCE if name == NORMALISED else TOLERANCE
        assert_same(answer, own[name], tolerance, name)
        assert_same(later[name], reread[name], tolerance, name)
    # A comparison that finds nothing would not find this either.
    with pytest.raises(AssertionError):
        assert_same(served["a text"], later["a text"], TOLERANCE)
