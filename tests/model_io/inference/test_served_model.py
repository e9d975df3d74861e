"""What a real Triton answers equals what the eager model gives, whatever is asked at once."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tandem.contract.inference_cost import InferenceCost
from tandem.model_io.inference.buckets import bucket_of
from tandem.model_io.inference.model_runner import TokenIds
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT, pair_batch_size
from tandem.model_io.repository.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.export.export import export_model
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_checkpoint import combine
from tandem.triton.client import TritonClient
from tests.support.modeling.separate_checkpoint import save_be_and_ce
from tests.support.triton.metrics import Counts, counted, wait_for_queue
from tests.support.triton.tiny_triton import Serving, serving, with_lone_instances

pytestmark = pytest.mark.xdist_group("served-model")

TOLERANCE = 1e-4
TIMEOUT_SECONDS = 30.0
CLIENT_COUNT = 16
CALLS_AT_ONCE = 4
BUSY_COUNT = 30
MOST_TIMES = 5


@pytest.fixture(scope="module")
def eager(tiny_checkpoint: Path) -> JointModel:
    return load_checkpoint(tiny_checkpoint).model


@dataclass(frozen=True, slots=True)
class Combined:
    """Two encoders that a Triton of their own serves as one; no other test adds to its counts."""

    bi_encoder: JointModel
    cross_encoder: JointModel
    manifest: Manifest
    running: Serving


@pytest.fixture(scope="module")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Combined]:
    folder = tmp_path_factory.mktemp("combined")
    folders = save_be_and_ce(folder)
    combine(*folders, folder / "combined")
    manifest = export_model(folder / "combined", folder / "repository", Precision.FP32)
    be, ce = (load_checkpoint(each).model for each in folders)
    served = with_lone_instances(folder / "repository", folder / "served", IMAGE_BACKBONE)
    with serving(served) as running:
        yield Combined(be, ce, manifest, running)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(5)


def made_texts(random: np.random.Generator, manifest: Manifest, count: int) -> list[TokenIds]:
    """Returns ids of all lengths that a text may have, in no order."""
    lengths = random.integers(2, manifest.text.max_tokens + 1, count)
    lengths[:4] = (2, 16, 17, manifest.text.max_tokens)  # the buckets' edges
    return [np.array([2, *random.integers(4, 40, length - 2), 3], np.int32) for length in lengths]


def made_pixels(random: np.random.Generator, manifest: Manifest, count: int) -> NDArray[np.uint8]:
    """Returns noise, no two pictures alike."""
    size = manifest.picture.size
    return random.integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def made_tokens(random: np.random.Generator, manifest: Manifest, count: int) -> NDArray[np.float16]:
    """Returns random image tokens [count, R, D]."""
    shape = (count, manifest.image_token_count, manifest.token_width)
    return random.standard_normal(shape).astype(np.float16)


def worst(served: NDArray[np.generic], expected: torch.Tensor) -> float:
    """Returns the largest difference; fails on another shape."""
    assert served.shape == tuple(expected.shape)
    return float(np.abs(served.astype(np.float64) - expected.double().numpy()).max())


async def test_texts(
    tiny_served: ServedModel, eager: JointModel, random: np.random.Generator
) -> None:
    """More texts than a batch holds, of mixed lengths, in their order, each as if it were alone."""
    texts = made_texts(random, tiny_served.manifest, 300)

    served = (await tiny_served.embed_texts(texts, TIMEOUT_SECONDS)).values

    rows = [torch.from_numpy(text)[None].long() for text in texts]
    with torch.inference_mode():
        expected = torch.cat([eager.embed_texts(ids, torch.ones_like(ids)) for ids in rows])
    assert served.dtype == np.float32
    assert worst(served, expected) <= TOLERANCE
    assert worst(served[::-1], expected) > 100 * TOLERANCE  # positive control: order is seen
    assert np.linalg.norm(served, axis=1) == pytest.approx(1.0, abs=1e-5)


async def test_images(
    tiny_served: ServedModel, eager: JointModel, random: np.random.Generator
) -> None:
    """More images than a batch of either model holds, in their order."""
    cls_id = tiny_served.manifest.cls_id or 0
    pixels = made_pixels(random, tiny_served.manifest, 70)

    tokens = (await tiny_served.image_tokens(pixels, TIMEOUT_SECONDS)).values
    encoded = (await tiny_served.encode_images(pixels, TIMEOUT_SECONDS)).values
    served = encoded.embeddings

    assert encoded.tokens is not None
    with torch.inference_mode():
        expected_tokens = eager.image_backbone(torch.from_numpy(pixels))
        expected = eager.embed_images(torch.from_numpy(encoded.tokens), cls_id)
    # float16: one step of what is near 4 is 0.004, and rounding may fall to either side.
    assert tokens.dtype == np.float16
    assert worst(tokens, expected_tokens) <= 0.004
    assert worst(encoded.tokens, expected_tokens) <= 0.004
    assert worst(tokens[::-1], expected_tokens) > 0.1
    assert worst(served, expected) <= TOLERANCE
    assert worst(np.roll(served, 1, axis=0), expected) > 10 * TOLERANCE


async def test_pairs(
    tiny_served: ServedModel, eager: JointModel, random: np.random.Generator
) -> None:
    """More pairs than a batch holds, of mixed lengths, in their order."""
    texts = made_texts(random, tiny_served.manifest, 200)
    images = made_tokens(random, tiny_served.manifest, 200)

    served = (await tiny_served.match_logits(texts, list(images), TIMEOUT_SECONDS)).values

    rows = [torch.from_numpy(text)[None].long() for text in texts]
    with torch.inference_mode():
        expected = torch.cat(
            [
                eager.match_logits(ids, torch.ones_like(ids), torch.from_numpy(image)[None])
                for ids, image in zip(rows, images, strict=True)
            ]
        )
    assert worst(served, expected) <= TOLERANCE
    assert worst(served[::-1], expected) > 100 * TOLERANCE


async def test_two_encoders_are_served_as_one(
    combined: Combined, random: np.random.Generator
) -> None:
    """Sep+Coop by the same calls: texts and images by the BE, pairs by the CE."""
    be, ce, manifest = combined.bi_encoder, combined.cross_encoder, combined.manifest
    text = np.array([2, 5, 6, 7, 3], np.int32)
    tokens, pixels = made_tokens(random, manifest, 8), made_pixels(random, manifest, 8)

    client = TritonClient(combined.running.address)
    model = ServedModel(client, manifest)
    texts = (await model.embed_texts([text], TIMEOUT_SECONDS)).values
    images = (await model.encode_images(pixels, TIMEOUT_SECONDS)).values
    logits = (await model.match_logits([text] * 8, list(tokens), TIMEOUT_SECONDS)).values
    await client.close()

    ids = torch.from_numpy(text)[None].long()
    pairs = (ids.expand(8, -1), torch.ones(8, 5, dtype=torch.int64), torch.from_numpy(tokens))
    with torch.inference_mode():
        assert worst(texts, be.embed_texts(ids, torch.ones_like(ids))) <= TOLERANCE
        seen = torch.from_numpy(np.asarray(images.tokens))
        assert worst(images.embeddings, be.embed_images(seen, manifest.cls_id or 0)) <= TOLERANCE
        assert worst(logits, ce.match_logits(*pairs)) <= TOLERANCE
        assert worst(logits, be.match_logits(*pairs)) > 100 * TOLERANCE  # positive control


async def test_concurrent_calls_equal_sequential_ones(
    tiny_served: ServedModel, random: np.random.Generator
) -> None:
    manifest = tiny_served.manifest
    texts = made_texts(random, manifest, 12)
    images, pixels = made_tokens(random, manifest, 12), made_pixels(random, manifest, 12)

    def calls(part: slice) -> list[Any]:
        return [
            tiny_served.embed_texts(texts[part], TIMEOUT_SECONDS),
            tiny_served.image_tokens(pixels[part], TIMEOUT_SECONDS),
            tiny_served.match_logits(texts[part], list(images[part]), TIMEOUT_SECONDS),
        ]

    parts = [slice(start, start + 3) for start in range(0, 12, 3)]
    together = await asyncio.gather(*(call for part in parts for call in calls(part)))
    alone = [await call for part in parts for call in calls(part)]

    for got, expected in zip(together, alone, strict=True):
        np.testing.assert_allclose(got.values, expected.values, atol=1e-5)


async def test_an_empty_request_gets_an_empty_answer(tiny_served: ServedModel) -> None:
    manifest = tiny_served.manifest
    size, rows, width = manifest.picture.size, manifest.image_token_count, manifest.token_width
    no_pixels = np.zeros((0, size, size, 3), dtype=np.uint8)

    assert (await tiny_served.embed_texts([], 1.0)).values.shape == (0, manifest.embedding_dim)
    assert (await tiny_served.image_tokens(no_pixels, 1.0)).values.shape == (0, rows, width)
    no_images = await tiny_served.encode_images(no_pixels, 1.0)
    assert no_images.values.embeddings.shape == (0, manifest.embedding_dim)
    assert (await tiny_served.match_logits([], [], 1.0)).values.shape == (0,)
    assert no_images.cost == InferenceCost()


async def test_a_call_reports_its_cost(
    tiny_served: ServedModel, random: np.random.Generator
) -> None:
    manifest = tiny_served.manifest
    # Two lengths so far apart, of so many texts, that none goes with the longer ones.
    lengths = [7, 15] * 20
    texts = [np.full(length, 5, dtype=np.int32) for length in lengths]
    images = made_tokens(random, manifest, 40)
    padded = [bucket_of(length, manifest.text.lengths) for length in lengths]
    rows = manifest.image_token_count

    alone = (await tiny_served.embed_texts(texts, TIMEOUT_SECONDS)).cost
    pixels = made_pixels(random, manifest, 40)
    pictures = (await tiny_served.encode_images(pixels, TIMEOUT_SECONDS)).cost
    pairs = (await tiny_served.match_logits(texts, list(images), TIMEOUT_SECONDS)).cost

    # A text alone is computed with one masked row, where an image would be.
    assert (alone.token_count, alone.padded_token_count) == (sum(lengths), sum(padded) + 40)
    assert pictures.token_count == pictures.padded_token_count == 40 * (rows + 1)
    assert pairs.token_count == sum(lengths) + 40 * rows
    assert pairs.padded_token_count == sum(padded) + 40 * rows
    assert (alone.pair_count, pictures.pair_count, pairs.pair_count) == (0, 0, 40)


async def test_requests_of_different_clients_share_executions(
    combined: Combined, random: np.random.Generator
) -> None:
    """One text a call from 16 connections, while both instances are busy: they go together.

    Nothing is held back for company, so only what waits is joined. Full batches of pairs, which
    nothing can join, keep the instances busy until the texts have come; where this process stands
    still for as long as they take, it is tried again. Texts that never join fail each time.
    """
    clients = [TritonClient(combined.running.address) for _ in range(CLIENT_COUNT)]
    text_count = CLIENT_COUNT * CALLS_AT_ONCE

    for _ in range(MOST_TIMES):
        execution_count = await _executions_of_texts(
            combined.running, combined.manifest, random, clients
        )
        if execution_count <= text_count / 4:
            break

    assert execution_count <= text_count / 4
    for client in clients:
        await client.close()


async def _executions_of_texts(
    serving: Serving, manifest: Manifest, random: np.random.Generator, clients: list[TritonClient]
) -> int:
    """Returns in how many executions the texts of all clients go that come behind pairs."""
    before = Counts.at_rest(serving.metrics_url, JOINT_ENCODER)
    pair_count = INSTANCE_COUNT * pair_batch_size(manifest)  # a full batch for each
    busy = [
        asyncio.create_task(_pairs(clients[0], manifest, random, pair_count))
        for _ in range(BUSY_COUNT)
    ]
    await asyncio.to_thread(
        wait_for_queue,
        serving.metrics_url,
        JOINT_ENCODER,
        BUSY_COUNT,
        lambda: not all(pairs.done() for pairs in busy),
    )
    await asyncio.gather(
        *(_text(client, manifest) for client in clients for _ in range(CALLS_AT_ONCE))
    )
    await asyncio.gather(*busy)
    row_count = BUSY_COUNT * pair_count + len(clients) * CALLS_AT_ONCE
    counts = counted(serving.metrics_url, JOINT_ENCODER, before, inference_count=row_count)
    assert counts.inferences == row_count
    return counts.executions - BUSY_COUNT * INSTANCE_COUNT  # type: ignore[return-value]


async def _text(client: TritonClient, manifest: Manifest) -> None:
    model = ServedModel(client, manifest)
    text = np.array([2, 7, 8, 3], dtype=np.int32)
    assert len((await model.embed_texts([text], TIMEOUT_SECONDS)).values) == 1


async def _pairs(
    client: TritonClient, manifest: Manifest, random: np.random.Generator, count: int
) -> None:
    model = ServedModel(client, manifest)
    texts = [np.full(manifest.text.max_tokens, 7, dtype=np.int32)] * count
    images = list(made_tokens(random, manifest, count))
    assert len((await model.match_logits(texts, images, TIMEOUT_SECONDS)).values) == count
