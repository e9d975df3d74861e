"""A SigLIP 2 with a ViLT or a BLIP-2, served by Triton: logits over gRPC are the library's."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.stack.stack import LocalStack, Ports
from tests.support.modeling.library_matches import pair_matches
from tests.support.modeling.published_cross_encoders import published_blip2, published_vilt
from tests.support.modeling.published_pairs import published_siglip

pytestmark = pytest.mark.slow

# Image tokens are float16, and logits of these small models differ by 0.005 and more.
CLOSE = 2e-4
TEXTS = ("two dogs", "one umbrella left of two cats", "cats of cats")


@pytest.mark.parametrize(
    ("publish", "kind"),
    [
        (published_vilt, "ViltForImageAndTextRetrieval"),
        (published_blip2, "Blip2ForImageTextRetrieval"),
    ],
    ids=["vilt", "blip-2"],
)
def test_match_logits_are_those_of_the_library(
    tmp_path: Path, publish: Callable[[Path], object], kind: str
) -> None:
    """Of square pictures, whose shape ViLT's authors keep as it is served."""
    retriever, reranker = tmp_path / "siglip", tmp_path / "reranker"
    published_siglip(retriever, is_second=True)
    publish(reranker)
    repository = tmp_path / "model_repository"
    command = ["models", "add", str(retriever), f"--model-repository={repository}"]
    options = ["--precision=fp32", f"--cross-encoder={reranker}", "--tokens=stored"]
    added = CliRunner().invoke(app, [*command, *options])
    assert added.exit_code == 0, f"{added.output}{added.exception}"
    files = [_square(number) for number in range(8)]

    with LocalStack(tmp_path / "data", repository, Ports.free(1)) as stack:
        stack.start()
        with Client(stack.address, timeout_seconds=60.0) as client:
            items = [(str(number), file) for number, file in enumerate(files)]
            outcomes = list(client.ingest(items, index_id="pictures"))
            assert all(outcome.error is None for outcome in outcomes), outcomes
            found = [
                client.search(text, index_id="pictures", retrieve_k=8, return_n=8).items
                for text in TEXTS
            ]

    logits = np.zeros((len(TEXTS), len(files)), np.float32)
    for row, items_found in enumerate(found):
        assert len(items_found) == len(files)
        for item in items_found:
            assert item.match_logit is not None
            logits[row, int(item.item_id)] = item.match_logit
    expected = pair_matches(reranker, kind, TEXTS, files)
    assert np.abs(logits - expected).max() < CLOSE
    # What the tolerance must tell apart: another picture, and another text.
    for axis in (0, 1):
        assert np.abs(np.roll(logits, 1, axis=axis) - expected).max() > 5 * CLOSE


def _square(seed: int) -> bytes:
    random = np.random.default_rng(seed)
    side = int(random.integers(20, 150))
    coarse = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((side, side), Image.Resampling.BICUBIC).save(file, "PNG")
    return file.getvalue()
