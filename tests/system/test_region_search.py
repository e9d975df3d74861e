"""Models of regions, small and random, searched over gRPC with what a detector would find.

Shapes: T text tokens, R regions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn

from tandem.client import Client, RegionContent
from tandem.errors import ImageInputUnsupported, RegionsInvalid
from tandem.lab.zoo.checkpoint import load_zoo_checkpoint
from tandem.lab.zoo.served import read_zoo_model
from tandem.lab.zoo.zoo_model import ZooModel
from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules
from tandem.model_io.pictures.region_vectors import content_vectors
from tandem.model_io.repository.precision import Precision
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.export.export import export_model
from tandem.modeling.export.published_export import export_published
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.joint_model import JointModel
from tandem.stack.stack import LocalStack, Ports
from tests.support.modeling.region_checkpoints import (
    FEATURE_WIDTH,
    oscar_weights,
    write_oscar,
)
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer
from tests.support.pictures.pictures import encoded, noise
from tests.support.triton.tiny_triton import with_lone_instances
from tests.support.zoo.tiny_zoo import save_tiny_zoo

TEXTS = ("two dogs left of one umbrella", "one cat", "two cats of one dogs")
MOST = 50
"""Regions that the models read."""


def regions(seed: int, count: int, width: int) -> RegionContent:
    """Returns random regions of a picture of 640 x 480 pixels."""
    random = np.random.default_rng(seed)
    corners = np.sort(random.random((count, 2, 2)), axis=1).reshape(count, 4)
    boxes = (corners * [640, 480, 640, 480]).astype("<f4")
    features = random.standard_normal((count, width)).astype("<f2")
    return RegionContent(features.tobytes(), boxes.tobytes(), count, width, 640, 480)


@dataclass(frozen=True)
class Model:
    """A model of regions, eager, and what its inputs are."""

    name: str
    joint: nn.Module
    tokenizer: Tokenizer
    cls_id: int
    feature_width: int

    @property
    def rules(self) -> RegionRules:
        """How its regions become vectors."""
        numbers = BoxNumbers.CORNERS_SIDES
        return RegionRules(feature_width=self.feature_width, box_numbers=numbers, max_regions=MOST)

    @property
    def pictures(self) -> dict[str, RegionContent]:
        """As a detector does, each has another number of regions; one more than is read."""
        counts = enumerate((3, 36, 1, 60, 10))
        return {f"photo-{seed}": regions(seed, each, self.feature_width) for seed, each in counts}

    @torch.inference_mode()
    def eager(
        self, text: str | None, content: RegionContent | None
    ) -> tuple[NDArray[np.float32], float]:
        """Returns embedding and match logit of a text, a picture or both."""
        ids = [self.cls_id] if text is None else self.tokenizer.encode(text).ids
        tokens, present = torch.zeros(1, 1, self.rules.vector_width), 0
        if content is not None:
            tokens, present = torch.from_numpy(content_vectors(content, self.rules))[None], 1
        ids_1T, mask_1R = torch.tensor([ids]), torch.full(tokens.shape[:2], present)
        embedding, logit = self.joint(ids_1T, torch.ones_like(ids_1T), tokens.float(), mask_1R)
        return embedding[0].numpy(), float(logit)


def oscar(folder: Path) -> Model:
    """Exports a published OSCAR."""
    published = read_published_model(write_oscar(folder / "published", oscar_weights()))
    parts = published.region_joint
    assert parts is not None
    export_published(published, folder / "model_repository", Precision.FP32)
    tokenizer = published.tokenizers["tokenizer.json"]
    return Model("oscar", parts.joint, tokenizer, parts.cls_id, FEATURE_WIDTH)


def ours(folder: Path) -> Model:
    """Exports a checkpoint as tandem train writes it, of 2,048 features."""
    tokenizer = tiny_tokenizer(TEXTS)
    config = JointConfig(
        vocabulary_size=tokenizer.get_vocab_size(),
        width=16,
        layer_count=2,
        head_count=2,
        encoder="post_norm",
        image_source="regions",
        region_count=MOST,
    )
    torch.manual_seed(0)
    model = JointModel(config).eval()
    save_checkpoint(folder / "checkpoint", model, tokenizer, {})
    export_model(folder / "checkpoint", folder / "model_repository", Precision.FP32)
    loaded = load_checkpoint(folder / "checkpoint").model.eval()
    cls_id = special_tokens(tokenizer).cls_id
    return Model("joint", loaded.joint_encoder, tokenizer, cls_id, 2048)


class OfTheZoo(nn.Module):
    """Gives what two networks of the zoo give, in the form of a joint encoder."""

    def __init__(self, bi_encoder: ZooModel, cross_encoder: ZooModel) -> None:
        super().__init__()
        self.bi_encoder, self.cross_encoder = bi_encoder, cross_encoder

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, tokens: torch.Tensor, present: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # SGRAF has a norm for each of its regions.
        absent_count = MOST - tokens.shape[1]
        tokens = nn.functional.pad(tokens, (0, 0, 0, absent_count))
        present = nn.functional.pad(present, (0, absent_count))
        if present.any():
            embedding = self.bi_encoder.embed_images(tokens, 0, present)
        else:
            embedding = self.bi_encoder.embed_texts(ids, mask)
        return embedding, self.cross_encoder.match_logits(ids, mask, tokens, present)


def zoo(folder: Path) -> Model:
    """Exports two networks of the zoo, one to retrieve and one to rerank."""
    inputs: dict[str, Any] = {"image_source": "regions", "region_count": MOST}
    save_tiny_zoo(folder / "vse_infinity", "vse_infinity", **inputs)
    save_tiny_zoo(folder / "saf", "saf", seed=1, **inputs)
    bi_encoder, cross_encoder = (read_zoo_model(folder / each) for each in ("vse_infinity", "saf"))
    export_published(
        bi_encoder, folder / "model_repository", Precision.FP32, reranker=cross_encoder
    )
    models = [load_zoo_checkpoint(folder / each) for each in ("vse_infinity", "saf")]
    both = OfTheZoo(*(each.model for each in models)).eval()
    return Model("zoo_vse_infinity+zoo_saf", both, models[0].tokenizer, 0, 2048)


@pytest.fixture(
    scope="module",
    # Export and calls of the others have tests of their own, without the services.
    params=[oscar, *(pytest.param(each, marks=pytest.mark.slow) for each in (ours, zoo))],
    name="served",
)
def _served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, Model]]:
    """A user's connection to a stack that serves a model, with an index of pictures and texts."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("regions")
    model: Model = request.param(folder)
    repository = with_lone_instances(folder / "model_repository", folder / "lone")
    with LocalStack(folder / "data", repository, Ports.free(shard_count=1)) as up:
        up.start()
        with Client(up.address, timeout_seconds=30.0) as client:
            texts = {f"text-{number}": text for number, text in enumerate(TEXTS)}
            items: list[tuple[str, str | bytes | RegionContent]] = [*model.pictures.items()]
            items += texts.items()
            outcomes = list(client.ingest(items, index_id="photos"))
            assert [each.error for each in outcomes] == [None] * len(items)
            yield client, model


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_finds_pictures_as_the_model_ranks_them(
    served: tuple[Client, Model], text: str
) -> None:
    """Similarities and logits are the eager model's, with fewer and more regions than it reads."""
    client, model = served

    found = client.search(text, index_id="photos", rerank_k=5, content_included=True)

    assert not found.degradations
    assert {item.item_id for item in found.items} == model.pictures.keys()
    query, _ = model.eager(text, None)
    logits = {name: model.eager(text, content)[1] for name, content in model.pictures.items()}
    assert [item.item_id for item in found.items] == sorted(
        logits, key=lambda name: logits[name], reverse=True
    )
    for item in found.items:
        embedding, _ = model.eager(None, model.pictures[item.item_id])
        assert item.similarity == pytest.approx(float(query @ embedding), abs=1e-4)
        assert item.match_logit == pytest.approx(logits[item.item_id], abs=1e-3)
        assert item.content == model.pictures[item.item_id]


def test_regions_find_texts(served: tuple[Client, Model]) -> None:
    """They are a query like a picture."""
    client, model = served
    query = regions(77, 20, model.feature_width)

    found = client.search(query, index_id="photos", rerank_k=3)

    logits = {f"text-{n}": model.eager(text, query)[1] for n, text in enumerate(TEXTS)}
    assert {item.item_id: item.match_logit for item in found.items} == {
        name: pytest.approx(logit, abs=1e-3) for name, logit in logits.items()
    }


def test_inputs_that_the_model_does_not_read_are_refused(served: tuple[Client, Model]) -> None:
    """A picture, another detector's regions, and a box outside the picture."""
    client, model = served
    outside = RegionContent.of(
        [[0.0] * model.feature_width], [[0, 0, 999, 9]], image_width=640, image_height=480
    )

    with pytest.raises(ImageInputUnsupported, match="reads a detector's regions and got images"):
        client.search(encoded(noise(1), "PNG"), index_id="photos")
    with pytest.raises(RegionsInvalid, match=r"\[2, 7\] instead of \[n, (12|2048)\]"):
        client.search(regions(1, 2, 7), index_id="photos")
    with pytest.raises(RegionsInvalid, match="reach out of an image of 640 x 480"):
        client.search(outside, index_id="photos")
