"""A served pair of two families: SigLIP finds, BLIP reranks, each by its own rules.

Two tokenizers, two ways to pad, two ways to fit a picture; what Triton gives equals the modules.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import torch
from tokenizers import Encoding as TokenizerEncoding

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.content import (
    Encoding,
    ImageContent,
    ImageTokens,
    TextContent,
    TextTokens,
    TruncationPolicy,
)
from tandem.encoding.encoder import Encoder
from tandem.inference.canary import check_encoding, check_matching
from tandem.inference.served_model import ServedModel
from tandem.inference.served_texts import ServedTexts
from tandem.modeling.export.published_export import export_published
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import read_published_model
from tandem.pictures.image import decode_image
from tandem.repository.manifest import Manifest, read_manifest
from tandem.repository.precision import Precision
from tandem.repository.priority import Priority
from tandem.repository.served_functions import ServedFunctions, TokenSource
from tandem.triton.client import TritonClient
from tests.support.modeling.published_cross_encoders import published_blip
from tests.support.modeling.published_pairs import published_siglip
from tests.support.pictures.pictures import encoded, noise
from tests.support.triton.tiny_triton import Serving, serving, with_lone_instances

# Slow: a Triton of four models, whose eight processes all start torch.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("triton-two-families")]

SECONDS = 30.0
TEXTS = ("two dogs", "a dog at two", "dogs")
# Rectangles, so that each way to fit them gives other pixels.
PICTURES = [
    encoded(noise(seed).crop((0, 0, width, height)), "PNG")
    for seed, (width, height) in enumerate([(48, 30), (26, 44)])
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[PublishedModel, PublishedModel]:
    """A retriever and a reranker, tiny and random; the reranker crops its pictures."""
    folder = tmp_path_factory.mktemp("published")
    makers: dict[str, Callable[[Path], object]] = {
        "siglip": published_siglip,
        "blip": published_blip,
    }
    for name, make in makers.items():
        (folder / name).mkdir()
        make(folder / name)
    siglip, blip = (read_published_model(folder / name) for name in makers)
    return siglip, blip


@pytest.fixture(scope="module")
def repository(
    models: tuple[PublishedModel, PublishedModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("served")
    export_published(models[0], folder / "exported", Precision.FP32, reranker=models[1])
    return with_lone_instances(folder / "exported", folder / "model_repository")


@pytest.fixture(scope="module")
def manifest(repository: Path) -> Manifest:
    return read_manifest(repository)


@pytest.fixture(scope="module")
def running(repository: Path) -> Iterator[Serving]:
    with serving(repository) as running:
        yield running


@pytest_asyncio.fixture
async def client(running: Serving) -> AsyncIterator[TritonClient]:
    client = TritonClient(running.address)
    yield client
    await client.close()


async def encodings(
    model: ServedModel, repository: Path, priority: Priority = Priority.INGEST
) -> Sequence[Encoding]:
    """Encodes the texts, then the pictures."""
    with ThreadPoolExecutor(2) as threads:
        texts = ServedTexts.open(repository, model.manifest)
        encoder = Encoder(model, texts, CallerTurns(threads, 2))
        batch = await encoder.encode(
            [*map(TextContent, TEXTS), *map(ImageContent, PICTURES)],
            SECONDS,
            TruncationPolicy.ERROR,
            priority,
        )
    assert all(isinstance(each, Encoding) for each in batch.outcomes), batch.outcomes
    return [each for each in batch.outcomes if isinstance(each, Encoding)]


def unpadded(each: TokenizerEncoding) -> list[int]:
    """The ids that a tokenizer gives, without those that its file says to append."""
    return [n for n, counts in zip(each.ids, each.attention_mask, strict=True) if counts]


async def test_each_side_reads_by_its_own_rules(
    models: tuple[PublishedModel, PublishedModel],
    repository: Path,
    manifest: Manifest,
    client: TritonClient,
) -> None:
    """Embeddings are the retriever's, tokens and logits the reranker's."""
    be, ce = models[0].bi_encoder, models[1].cross_encoder
    towers = models[1].bi_encoder
    assert be is not None
    assert ce is not None
    assert towers is not None

    model = ServedModel(client, manifest)
    made = await encodings(model, repository)

    ids = models[0].tokenizers[be.text.tokenizer].encode_batch(TEXTS)
    for text, each, encoding in zip(TEXTS, ids, made[: len(TEXTS)], strict=True):
        # SigLIP: 64 ids, padding attended to.
        own_ids = unpadded(each)
        padded = torch.full((1, be.text.max_tokens), be.text.pad_id)
        padded[0, : len(own_ids)] = torch.tensor(own_ids)
        expected = be.embed_text(padded, torch.ones_like(padded))[0].detach()
        np.testing.assert_allclose(encoding.embedding, expected, atol=1e-4)
        short = torch.tensor([own_ids])
        # Positive control: without the padding it is another vector.
        assert float(be.embed_text(short, torch.ones_like(short))[0] @ expected) < 0.999
        assert isinstance(encoding.tokens, TextTokens)
        pair_ids = unpadded(models[1].tokenizers[ce.text.tokenizer].encode(text))
        assert encoding.tokens.ids.tolist() == [ce.text.first_id, *pair_ids[1:]]
    for picture, encoding in zip(PICTURES, made[len(TEXTS) :], strict=True):
        pixels = torch.from_numpy(decode_image(picture, be.pixels)[None].copy())
        np.testing.assert_allclose(
            encoding.embedding, be.embed_image(pixels)[0].detach(), atol=1e-4
        )
        pair_pixels = torch.from_numpy(decode_image(picture, ce.pixels)[None].copy())
        tokens = towers.embed_image(pair_pixels)[1][0].detach()
        assert isinstance(encoding.tokens, ImageTokens)
        np.testing.assert_allclose(encoding.tokens.values, tokens, atol=4e-3)

    ids_of = [each.tokens.ids for each in made if isinstance(each.tokens, TextTokens)][:2]
    values = [each.tokens.values for each in made if isinstance(each.tokens, ImageTokens)]
    logits = await model.match_logits(ids_of, values, SECONDS)
    for text_ids, rows, logit in zip(ids_of, values, logits.values, strict=True):
        ids_1T = torch.from_numpy(text_ids)[None].long()
        present = torch.ones(1, len(rows), dtype=torch.int64)
        pair = (ids_1T, torch.ones_like(ids_1T), torch.from_numpy(rows)[None], present)
        np.testing.assert_allclose(logit, ce.score_pair(*pair)[0, 0].item(), atol=1e-4)


async def test_canaries_reach_every_triton_model(manifest: Manifest, client: TritonClient) -> None:
    """Of both services, in a model that recomputes tokens too."""
    await check_encoding(ServedModel(client, manifest))
    await check_matching(ServedModel(client, replace(manifest, tokens=TokenSource.RECOMPUTED)))


async def test_recomputed_tokens_are_not_stored(
    repository: Path, manifest: Manifest, client: TritonClient
) -> None:
    """An ingested picture comes without tokens, a query's with them; texts keep theirs."""
    model = ServedModel(client, replace(manifest, tokens=TokenSource.RECOMPUTED))

    stored = await encodings(model, repository)
    asked = await encodings(model, repository, Priority.QUERY)

    assert [each.tokens.is_empty for each in stored] == [False] * 3 + [True] * 2
    assert not any(each.tokens.is_empty for each in asked)


async def test_a_bi_encoder_alone_gives_no_tokens(
    repository: Path, manifest: Manifest, client: TritonClient
) -> None:
    """The same towers without the cross-encoder: the same embeddings, and nothing to score."""
    functions = ServedFunctions(embed_text="text_encoder", embed_image=("image_encoder",))
    alone = replace(manifest, functions=functions, pair_text=None, pair_image=None)

    both = await encodings(ServedModel(client, manifest), repository)
    made = await encodings(ServedModel(client, alone), repository)

    for one, other in zip(made, both, strict=True):
        np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-5)
        assert one.tokens.is_empty
        assert one.tokens.modality is other.tokens.modality
