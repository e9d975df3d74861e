"""A BLIP, and a SigLIP with a BLIP, served by Triton: scores over gRPC are the library's.

The second has two picture sizes and two tokenizers, and makes its tokens again at each rerank.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.stack.stack import LocalStack, Ports
from tests.support.modeling.library_embeddings import library_pictures, library_texts
from tests.support.modeling.library_matches import blip_matches, blip_similarities
from tests.support.modeling.published_cross_encoders import WORD_COUNT, published_blip
from tests.support.modeling.published_pairs import published_siglip

pytestmark = pytest.mark.slow

ENCODE_ID, CLS_ID = WORD_COUNT + 1, 2
# Image tokens are float16.
CLOSE = 2e-3
TEXTS = ("two dogs", "one umbrella left of two cats", "cats of cats")
INDEX_ID = "pictures"


@dataclass(frozen=True)
class Served:
    """A running stack with items, and the folders of what it serves."""

    stack: LocalStack
    retriever: Path
    reranker: Path
    files: tuple[bytes, ...]

    def searched(self, text: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns similarities and match logits of all items, in the order of `files`."""
        with Client(self.stack.address, timeout_seconds=60.0) as client:
            found = client.search(text, index_id=INDEX_ID, retrieve_k=50, return_n=50).items
        by_id = {item.item_id: item for item in found}
        assert len(by_id) == len(self.files)
        ordered = [by_id[str(number)] for number in range(len(self.files))]
        assert all(item.match_logit is not None for item in ordered)
        return (
            np.array([item.similarity for item in ordered], np.float32),
            np.array([item.match_logit for item in ordered], np.float32),
        )


@pytest.fixture(scope="module", params=["blip", "siglip and blip"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("published")
    retriever = reranker = folder / "blip"
    published_blip(reranker, size=48)
    options = ["--tokens=stored"]
    if request.param != "blip":
        retriever = folder / "siglip"
        published_siglip(retriever, is_second=True)
        options = [f"--cross-encoder={reranker}", "--tokens=recomputed"]
    repository = folder / "model_repository"
    command = ["models", "add", str(retriever), f"--model-repository={repository}"]
    added = CliRunner().invoke(app, [*command, "--precision=fp32", *options])
    assert added.exit_code == 0, f"{added.output}{added.exception}"
    files = tuple(_file(number) for number in range(12))
    with LocalStack(folder / "data", repository, Ports.free(1)) as stack:
        stack.start()
        with Client(stack.address, timeout_seconds=60.0) as client:
            items = [(str(number), file) for number, file in enumerate(files)]
            outcomes = list(client.ingest(items, index_id=INDEX_ID))
        assert all(outcome.error is None for outcome in outcomes), outcomes
        yield Served(stack, retriever, reranker, files)


def test_match_logits_are_those_of_the_library(served: Served) -> None:
    logits = np.stack([served.searched(text)[1] for text in TEXTS])

    expected = blip_matches(served.reranker, TEXTS, served.files, ENCODE_ID)

    assert np.abs(logits - expected).max() < CLOSE
    # What the tolerance must tell apart: another picture, and the first token of transformers.
    assert np.abs(np.roll(logits, 1, axis=1) - expected).max() > 5 * CLOSE
    with_cls = blip_matches(served.reranker, TEXTS, served.files, CLS_ID)
    assert np.abs(with_cls - expected).min() > 5 * CLOSE


def test_a_second_search_gives_the_same_logits(served: Served) -> None:
    """From the caches, of tokens that are recomputed too."""
    first, second = (served.searched(TEXTS[0])[1] for _ in range(2))
    assert np.abs(first - second).max() < 1e-4


def test_similarities_are_those_of_the_library(served: Served) -> None:
    if served.retriever == served.reranker:
        expected = blip_similarities(served.retriever, TEXTS, served.files)
    else:
        pictures = [Image.open(io.BytesIO(file)) for file in served.files]
        texts = library_texts(served.retriever, TEXTS)
        expected = texts @ library_pictures(served.retriever, pictures).T

    similarities = np.stack([served.searched(text)[0] for text in TEXTS])

    assert np.abs(similarities - expected).max() < 1e-4


def _file(seed: int) -> bytes:
    random = np.random.default_rng(seed)
    width, height = (int(side) for side in random.integers(20, 150, 2))
    coarse = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "PNG")
    return file.getvalue()
