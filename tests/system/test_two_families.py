"""A SigLIP that finds and a BLIP that reranks, over gRPC: tokens recomputed, both directions.

What real processes answer equals the modules of both families.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client, Modality, StoredItem
from tandem.local.stack import LocalStack, Ports
from tandem.modeling.families.published_model import CrossEncoderParts, PublishedModel
from tandem.modeling.families.reader import read_published_model
from tandem.pictures.image import decode_image
from tandem.texts.text import TextPreprocessor
from tests.support.modeling.published_cross_encoders import published_blip
from tests.support.modeling.published_pairs import published_siglip
from tests.support.pictures.pictures import encoded, noise

pytestmark = pytest.mark.slow

COUNT = 12
PICTURES = {f"p{seed}": encoded(noise(seed).crop((0, 0, 48, 30)), "PNG") for seed in range(COUNT)}
TEXTS = {"t0": "two dogs", "t1": "a dog at two", "t2": "dogs"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where both models are, as published."""
    made: dict[str, Path] = {}
    makers: dict[str, Callable[[Path], object]] = {
        "siglip": published_siglip,
        "blip": published_blip,
    }
    for name, make in makers.items():
        made[name] = tmp_path_factory.mktemp(name)
        make(made[name])
    return made


@pytest.fixture(scope="module")
def client(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A connection to a stack that serves both, with the pictures and texts ingested."""
    repository = tmp_path_factory.mktemp("served") / "model_repository"
    options = ["--precision=fp32", "--tokens=recomputed", "--model-repository", str(repository)]
    added = CliRunner().invoke(
        app,
        ["models", "add", str(folders["siglip"]), f"--cross-encoder={folders['blip']}", *options],
    )
    assert added.exit_code == 0, f"{added.output}{added.exception}"
    assert "computed again when it is reranked" in added.output
    with LocalStack(tmp_path_factory.mktemp("data"), repository, Ports.free(1)) as stack:
        stack.start()
        with Client(stack.address, timeout_seconds=60.0) as client:
            items: list[tuple[str, str | bytes]] = [*PICTURES.items(), *TEXTS.items()]
            assert all(each.error is None for each in client.ingest(items, index_id="both"))
            yield client


def logit(blip: PublishedModel, text: str, picture: bytes) -> float:
    """What BLIP's own modules give for a pair."""
    parts, towers = blip.cross_encoder, blip.bi_encoder
    assert isinstance(parts, CrossEncoderParts)
    assert towers is not None
    texts = TextPreprocessor.by_rules(blip.tokenizers[parts.text.tokenizer], parts.text)
    ids_1T = torch.from_numpy(texts.token_ids(text)).long()[None]
    with torch.inference_mode():
        pixels = torch.from_numpy(decode_image(picture, parts.pixels)[None].copy())
        tokens = towers.embed_image(pixels)[1]
        present = torch.ones(tokens.shape[:2], dtype=torch.int64)
        return float(parts.score_pair(ids_1T, torch.ones_like(ids_1T), tokens, present))


def test_pictures_are_found_by_one_and_ordered_by_the_other(
    client: Client, folders: dict[str, Path]
) -> None:
    """All are scored, though the index holds no image tokens; twice, the second time cached."""
    blip = read_published_model(folders["blip"])
    expected = {name: logit(blip, "two dogs", file) for name, file in PICTURES.items()}

    for _ in range(2):
        result = client.search("two dogs", index_id="both", retrieve_k=COUNT, return_n=COUNT)

        assert result.rerank.stop == "COMPLETE"
        found = {item.item_id: item.match_logit for item in result.items}
        assert found == pytest.approx(expected, abs=2e-3)
        assert [item.item_id for item in result.items] == sorted(
            found, key=lambda name: -(found[name] or 0.0)
        )
    assert np.ptp(list(expected.values())) > 2e-2  # positive control: pictures differ


def test_texts_are_found_by_a_picture(client: Client, folders: dict[str, Path]) -> None:
    """The query's tokens come from the encoder, the texts' from the index."""
    blip = read_published_model(folders["blip"])

    result = client.search(PICTURES["p1"], index_id="both", retrieve_k=3, return_n=3)

    assert result.rerank.stop == "COMPLETE"
    expected = {name: logit(blip, text, PICTURES["p1"]) for name, text in TEXTS.items()}
    assert {item.item_id: item.match_logit for item in result.items} == pytest.approx(
        expected, abs=2e-3
    )


def test_texts_are_found_by_a_stored_picture(client: Client) -> None:
    """The index has none of its tokens, so the encoder makes them as of a picture that is sent."""
    sent, stored = [
        client.search(
            query,
            index_id="both",
            target_modality=Modality.TEXT,
            retrieve_k=3,
            return_n=3,
            rerank_required=True,
        )
        for query in (PICTURES["p1"], StoredItem("p1"))
    ]

    logits = [{item.item_id: item.match_logit for item in each.items} for each in (sent, stored)]
    assert logits[1] == pytest.approx(logits[0], abs=2e-3)
    assert set(logits[1]) == set(TEXTS)
