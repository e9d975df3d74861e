"""A published OSCAR, small and random, searched over gRPC with a detector's regions.

Shapes: R regions, D numbers of a region.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tandem.client import Client, RegionContent
from tandem.errors import ImageInputUnsupported, RegionsInvalid
from tandem.local.stack import LocalStack, Ports
from tandem.model_io.preprocessing import BoxNumbers, RegionRules
from tandem.model_io.region_vectors import content_vectors
from tandem.modeling.export.region_export import export_region_model
from tandem.modeling.families.published_model import PublishedModel, RegionJointParts
from tandem.modeling.families.reader import read_published_model
from tests.support.model_io.pictures import encoded, noise
from tests.support.modeling.region_checkpoints import (
    FEATURE_WIDTH,
    oscar_weights,
    write_oscar,
)

TEXTS = ("two dogs left of one umbrella", "one cat", "two cats of one dogs")
RULES = RegionRules(
    feature_width=FEATURE_WIDTH, box_numbers=BoxNumbers.CORNERS_SIDES, max_regions=50
)


def regions(seed: int, count: int, width: int = FEATURE_WIDTH) -> RegionContent:
    """Returns random regions of a picture of 640 x 480 pixels."""
    random = np.random.default_rng(seed)
    corners = np.sort(random.random((count, 2, 2)), axis=1).reshape(count, 4)
    boxes = (corners * [640, 480, 640, 480]).astype("<f4")
    features = random.standard_normal((count, width)).astype("<f2")
    return RegionContent(features.tobytes(), boxes.tobytes(), count, width, 640, 480)


# As a detector does, each has another number of regions, and one more than the model reads.
PICTURES = {f"photo-{seed}": regions(seed, count) for seed, count in enumerate((3, 36, 1, 60, 10))}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PublishedModel:
    """The published model."""
    torch.set_num_threads(1)
    return read_published_model(write_oscar(tmp_path_factory.mktemp("oscar"), oscar_weights()))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, model: PublishedModel) -> Iterator[Client]:
    """A user's connection to a stack that serves it, with an index of pictures and texts."""
    folder = tmp_path_factory.mktemp("regions")
    export_region_model(model, folder / "model_repository")
    with LocalStack(folder / "data", folder / "model_repository", Ports.free(shard_count=1)) as up:
        up.start()
        with Client(up.address, timeout_seconds=30.0) as connected:
            texts = {f"text-{number}": text for number, text in enumerate(TEXTS)}
            items: list[tuple[str, str | bytes | RegionContent]] = [*PICTURES.items()]
            items += texts.items()
            outcomes = list(connected.ingest(items, index_id="photos"))
            assert [each.error for each in outcomes] == [None] * len(items)
            yield connected


@torch.inference_mode()
def eager(
    model: PublishedModel, text: str | None, content: RegionContent | None
) -> tuple[NDArray[np.float32], float]:
    """Returns embedding and match logit of a text, a picture or both, by the eager model."""
    parts = parts_of(model)
    ids = [parts.cls_id] if text is None else model.tokenizers["tokenizer.json"].encode(text).ids
    tokens, present = torch.zeros(1, 1, RULES.vector_width), 0
    if content is not None:
        tokens, present = torch.from_numpy(content_vectors(content, RULES))[None].float(), 1
    mask = torch.full(tokens.shape[:2], present)
    ids_1T = torch.tensor([ids])
    embedding, logit = parts.joint(ids_1T, torch.ones_like(ids_1T), tokens, mask)
    return embedding[0].numpy(), float(logit)


def parts_of(model: PublishedModel) -> RegionJointParts:
    assert model.region_joint is not None
    return model.region_joint


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_finds_pictures_as_the_model_ranks_them(
    client: Client, model: PublishedModel, text: str
) -> None:
    """Similarities and logits are the eager model's, with fewer and more regions than it reads."""
    found = client.search(text, index_id="photos", rerank_k=5, content_included=True)

    assert not found.degradations
    assert {item.item_id for item in found.items} == PICTURES.keys()
    query, _ = eager(model, text, None)
    logits = {name: eager(model, text, content)[1] for name, content in PICTURES.items()}
    assert [item.item_id for item in found.items] == sorted(
        logits, key=lambda name: logits[name], reverse=True
    )
    for item in found.items:
        embedding, _ = eager(model, None, PICTURES[item.item_id])
        assert item.similarity == pytest.approx(float(query @ embedding), abs=1e-4)
        assert item.match_logit == pytest.approx(logits[item.item_id], abs=1e-3)
        assert item.content == PICTURES[item.item_id]


def test_regions_find_texts(client: Client, model: PublishedModel) -> None:
    """They are a query like a picture."""
    query = regions(77, 20)

    found = client.search(query, index_id="photos", rerank_k=3)

    logits = {f"text-{n}": eager(model, text, query)[1] for n, text in enumerate(TEXTS)}
    assert {item.item_id: item.match_logit for item in found.items} == {
        name: pytest.approx(logit, abs=1e-3) for name, logit in logits.items()
    }


def test_what_the_model_does_not_read_is_refused(client: Client) -> None:
    """A picture, another detector's regions, and a box outside the picture."""
    outside = RegionContent.of(
        [[0.0] * FEATURE_WIDTH], [[0, 0, 999, 9]], image_width=640, image_height=480
    )

    with pytest.raises(ImageInputUnsupported, match="reads a detector's regions and got images"):
        client.search(encoded(noise(1), "PNG"), index_id="photos")
    with pytest.raises(RegionsInvalid, match=r"\[2, 7\] instead of \[n, 12\]"):
        client.search(regions(1, 2, width=7), index_id="photos")
    with pytest.raises(RegionsInvalid, match="reach out of an image of 640 x 480"):
        client.search(outside, index_id="photos")


def test_the_model_says_what_it_reads(client: Client) -> None:
    described = client.describe_model()

    assert (described.family, described.region_feature_width) == ("oscar", FEATURE_WIDTH)
    assert described.max_region_count == 50
