"""Order by neighbours through real processes: two shards, Triton with the networks, the SDK.

Its own processes, because those that other tests share have no neighbour model.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client, SearchResult
from tandem.contract.content import Modality
from tandem.corpus.readers.picture_folder import read_picture_folder
from tandem.lab.evaluation.gallery import make_gallery
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel
from tandem.lab.neighbours.lists.neighbour_file import load_neighbours
from tandem.model_io.repository.manifest import read_manifest
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_from_proto
from tests.support.neighbours.served_corpus import ServedCorpus, tiny_leaprr
from tests.support.pictures.pictures import encoded, noise

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("neighbour-stack")]

WORDS = ["dog", "cat", "red", "blue", "house", "tree", "sun", "two", "boat", "cup"]
COUNT = 24
INDEX = "near"


@dataclass(frozen=True, slots=True)
class Filled:
    """Holds running processes, and what their index has."""

    stack: LocalStack
    model: LeaprrModel
    contents: dict[str, str | bytes]

    def stored(self) -> ServedCorpus:
        """Reads the embeddings of every item, by number."""
        found: dict[str, np.ndarray] = {}
        for port in self.stack.ports.index:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                got = IndexServiceStub(channel).GetItems(
                    pb.GetItemsRequest(
                        index_id=INDEX, item_ids=self.contents, encodings_included=True
                    ),
                    timeout=60,
                )
            found |= {
                item.item_id: embedding_from_proto(item.embedding) for item in got.encoded_items
            }
        return ServedCorpus(
            np.stack([found[f"image-{n:02}"] for n in range(COUNT)]),
            np.stack([found[f"text-{n:02}"] for n in range(COUNT)]),
        )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path) -> Iterator[Filled]:
    """Texts of a few words, and pictures of noise, with networks of random weights."""
    from tandem.lab.neighbours.leaprr.served_networks import install_leaprr

    folder = tmp_path_factory.mktemp("neighbour-stack")
    repository = shutil.copytree(tiny_repository, folder / "model_repository")
    # Without layer norms, which magnify the rounding of similarities as near as these.
    model = tiny_leaprr("paper")
    install_leaprr(model, read_manifest(repository).fingerprint, repository)
    rng = np.random.default_rng(5)
    contents: dict[str, str | bytes] = {}
    for number in range(COUNT):
        contents[f"text-{number:02}"] = " ".join(rng.choice(WORDS, 4, replace=False))
        contents[f"image-{number:02}"] = encoded(noise(number), "PNG")
    with LocalStack(folder / "data", repository, Ports.free(shard_count=2)) as stack:
        stack.start()
        with Client(stack.address, timeout_seconds=30.0) as client:
            outcomes = list(client.ingest(list(contents.items()), index_id=INDEX))
        assert not [outcome for outcome in outcomes if outcome.error]
        yield Filled(stack, model, contents)


def search(filled: Filled, item_id: str) -> SearchResult:
    """Searches with the content of an item."""
    with Client(filled.stack.address, timeout_seconds=30.0) as client:
        return client.search(
            filled.contents[item_id],
            index_id=INDEX,
            return_n=20,
            rerank_disabled=True,
            neighbours_enabled=True,
            neighbours_required=True,
        )


@pytest.mark.parametrize("modality", list(Modality))
def test_served_is_offline(filled: Filled, modality: Modality) -> None:
    """Two shards score a query as one process does over the embeddings that they store."""
    corpus = filled.stored()
    for number in (0, 7):
        result = search(filled, f"{modality.value}-{number:02}")
        offline = corpus.offline_scores(filled.model, modality, number)

        served = {
            int(item.item_id.rpartition("-")[2]): item.neighbour_score
            for item in result.items
            if item.neighbour_score is not None
        }
        assert served == pytest.approx(offline, abs=1e-5)
        assert len(served) == (5 if modality is Modality.TEXT else 9)
        scores = [item.neighbour_score or 0.0 for item in result.items[: len(served)]]
        assert scores == sorted(scores, reverse=True)


def test_the_model_is_described(filled: Filled) -> None:
    with Client(filled.stack.address, timeout_seconds=30.0) as client:
        model = client.describe_model()

    assert model.neighbour_model is not None
    assert model.neighbour_model.base_fingerprint == model.fingerprint
    assert model.neighbour_model.text_query_item_count == 5


def test_lists_are_built_by_the_served_model(filled: Filled, tmp_path: Path) -> None:
    """Their embeddings are those that the shards store, and their fingerprint is the model's."""
    pets = tmp_path / "pets"
    pets.mkdir()
    for number in range(COUNT):
        picture, text = (filled.contents[f"{each}-{number:02}"] for each in ("image", "text"))
        assert isinstance(picture, bytes)
        assert isinstance(text, str)
        (pets / f"{number:02}.png").write_bytes(picture)
        (pets / f"{number:02}.txt").write_text(text)
    words = [str(tmp_path / "file"), "--corpus", f"folder:{pets}", "--split", "all", "--k", "4"]

    result = CliRunner().invoke(
        app, ["neighbours", "build", *words, "--address", filled.stack.address]
    )

    assert result.exit_code == 0, result.output
    near, stored = load_neighbours(tmp_path / "file"), filled.stored()
    records = read_picture_folder(pets, "all")
    by_id = make_gallery(list(records), ["en"]).tie_order(Modality.IMAGE)
    assert_allclose(near.images, stored.images[by_id], atol=1e-5)
    with Client(filled.stack.address, timeout_seconds=30.0) as client:
        assert near.source.model_fingerprint == client.describe_model().fingerprint
