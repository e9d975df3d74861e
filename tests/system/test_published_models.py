"""A CLIP and a SigLIP, added by the command and served by Triton, embed as transformers does."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.model_io.texts.visible_text import visible_text
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import content_pb2, encoder_service_pb2, encoder_service_pb2_grpc
from tandem.wire import embeddings_from_proto
from tests.support.modeling.library_embeddings import library_pictures, library_texts
from tests.support.modeling.odd_contents import odd_pictures, odd_texts
from tests.support.modeling.published_pairs import published_clip, published_siglip

pytestmark = pytest.mark.slow

# Cosine distance.
CLOSE = 1e-5
TEXTS = [text for text in odd_texts(40) if "</s>" not in text]
TRUNCATE = content_pb2.TRUNCATION_POLICY_TRUNCATE

Served = tuple[LocalStack, Path]


@pytest.fixture(scope="module", params=["clip", "siglip"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A running stack, and the folder of the model that it serves."""
    folder = tmp_path_factory.mktemp("published")
    makers: dict[str, Callable[[Path], object]] = {
        "clip": published_clip,
        "siglip": lambda path: published_siglip(path, is_second=True),
    }
    makers[request.param](folder)
    repository = tmp_path_factory.mktemp("served") / "model_repository"
    added = CliRunner().invoke(
        app,
        ["models", "add", str(folder), "--model-repository", str(repository), "--precision=fp32"],
    )
    assert added.exit_code == 0, f"{added.output}{added.exception}"
    with LocalStack(tmp_path_factory.mktemp("data"), repository, Ports.free(1)) as stack:
        stack.start()
        yield stack, folder


def encoded(stack: LocalStack, contents: Sequence[content_pb2.Content]) -> NDArray[np.float32]:
    """Returns embeddings over gRPC, float32 [n, d]."""
    with grpc.insecure_channel(f"127.0.0.1:{stack.ports.encoder}") as channel:
        stub = encoder_service_pb2_grpc.EncoderServiceStub(channel)
        embeddings = []
        for start in range(0, len(contents), 10):
            answer = stub.EncodeContents(
                encoder_service_pb2.EncodeContentsRequest(
                    contents=contents[start : start + 10], truncation_policy=TRUNCATE
                ),
                timeout=60,
            )
            assert not any(each.HasField("error") for each in answer.results), answer.results
            embeddings += [each.encoding.embedding for each in answer.results]
    return embeddings_from_proto(embeddings)


def distance(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """Returns the largest cosine distance of a row."""
    return float((1 - (ours.astype(np.float64) * theirs).sum(axis=1)).max())


def test_texts_and_pictures_are_embedded_as_the_library_embeds_them(served: Served) -> None:
    stack, folder = served
    files, pictures = zip(*odd_pictures(40), strict=True)

    texts = encoded(stack, [content_pb2.Content(text=text) for text in TEXTS])
    images = encoded(stack, [content_pb2.Content(image=file) for file in files])

    expected = library_texts(folder, [visible_text(text) for text in TEXTS])
    assert distance(texts, expected) <= CLOSE
    assert distance(images, library_pictures(folder, pictures)) <= CLOSE
    assert distance(np.roll(texts, 1, axis=0), expected) > 100 * CLOSE


def test_results_keep_the_order_of_the_bi_encoder(served: Served) -> None:
    stack, folder = served
    files, pictures = zip(*odd_pictures(30)[10:], strict=True)
    items: list[tuple[str, str | bytes]] = [(f"p{n}", file) for n, file in enumerate(files)]
    theirs = library_pictures(folder, [each for each in pictures if isinstance(each, Image.Image)])
    query = library_texts(folder, ["two dogs"])[0]
    with Client(stack.address, timeout_seconds=30.0) as client:
        assert all(outcome.error is None for outcome in client.ingest(items, index_id="photos"))
        result = client.search("two dogs", index_id="photos", retrieve_k=20, return_n=20)
        described = client.describe_model()

    similarities = {f"p{n}": float(row @ query) for n, row in enumerate(theirs)}
    assert [item.item_id for item in result.items] == sorted(
        similarities, key=lambda item_id: -similarities[item_id]
    )
    for item in result.items:
        assert item.match_logit is None
        assert item.similarity == pytest.approx(similarities[item.item_id], abs=1e-4)
    assert result.rerank.stop == "NOT_APPLICABLE"
    assert described.family == ("clip" if len(query) == 24 else "siglip")
