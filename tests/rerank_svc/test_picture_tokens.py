"""A model that recomputes image tokens: the same logits from pictures as from stored tokens."""

from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.content import Encoding, ImageContent, ImageTokens
from tandem.local.item_store.item_store import ItemStore
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.repository.manifest import IMAGE_BACKBONE, Manifest
from tandem.model_io.repository.served_functions import ServedFunctions, TokenSource
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemRecord
from tandem.triton.client import TritonClient
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1 import search_service_pb2
from tests.support.item_store.made_items import unit_vector
from tests.support.pictures.pictures import encoded, noise
from tests.support.rerank_svc.served_reranker import (
    INDEX_ID,
    MAP_BYTES,
    TIMEOUT_SECONDS,
    request,
    served,
)
from tests.support.triton.metrics import Counts

# More than are read at once.
COUNT = 18
NAMES = [f"i-{number}" for number in range(COUNT)]
NONE = np.zeros((0, 0), dtype=np.float16)


def pictures() -> list[bytes]:
    """Files of noise, no two alike."""
    return [encoded(noise(size=60 + number), "PNG") for number in range(COUNT)]


def write(path: Path, fingerprint: str, tokens: list[np.ndarray], files: list[bytes]) -> Path:
    """Writes a shard of these pictures with these tokens, as index_svc would."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    items = [
        ItemRecord(name, ImageContent(file), Encoding(unit_vector(1), ImageTokens(values)))
        for name, file, values in zip(NAMES, files, tokens, strict=True)
    ]
    store.apply([Upsert(INDEX_ID, fingerprint, items)])
    store.close()
    return path


@pytest.fixture
def recomputing(triton_client: TritonClient, tiny_manifest: Manifest) -> ServedModel:
    """The small model, as if it had been exported to recompute."""
    changed = replace(tiny_manifest, tokens=TokenSource.RECOMPUTED, default_fusion="add")
    return ServedModel(triton_client, changed)


async def test_pictures_give_the_logits_of_stored_tokens(
    tiny_served: ServedModel,
    recomputing: ServedModel,
    tiny_manifest: Manifest,
    tmp_path: Path,
) -> None:
    """The second time, the tokens of all pictures are cached, and none is computed."""
    fingerprint, files = tiny_manifest.fingerprint, pictures()
    pixels = np.stack([decode_image(file, tiny_manifest.picture) for file in files])
    tokens = (await tiny_served.image_tokens(pixels, TIMEOUT_SECONDS)).values
    stored = write(tmp_path / "stored", fingerprint, list(tokens), files)
    bare = write(tmp_path / "bare", fingerprint, [NONE] * COUNT, files)
    asked = request([*NAMES, "i-absent"], fingerprint)

    async with served(tiny_served, stored) as stub:
        expected = await stub.ScoreCandidates(asked, timeout=TIMEOUT_SECONDS)
    async with served(recomputing, bare, token_cache_bytes=1 << 20) as stub:
        first = await stub.ScoreCandidates(asked, timeout=TIMEOUT_SECONDS)
        before = Counts.asked(IMAGE_BACKBONE)
        second = await stub.ScoreCandidates(asked, timeout=TIMEOUT_SECONDS)
        after = Counts.asked(IMAGE_BACKBONE)

    assert after == before
    assert logits(first)[-1] is None
    assert first.default_fusion == search_service_pb2.FUSION_METHOD_LOGIT_ADD
    assert expected.default_fusion == search_service_pb2.FUSION_METHOD_CROSS_ENCODER
    np.testing.assert_allclose(of_all(first), of_all(expected), atol=1e-3)
    np.testing.assert_allclose(of_all(second), of_all(expected), atol=1e-3)
    # Positive control: pictures differ by more than that.
    assert np.ptp(of_all(expected)) > 5e-3


async def test_a_picture_that_cannot_be_read_has_no_score(
    recomputing: ServedModel, tiny_manifest: Manifest, tmp_path: Path
) -> None:
    """The others have theirs."""
    files = [b"no picture", *pictures()[1:]]
    bare = write(tmp_path / "bare", tiny_manifest.fingerprint, [NONE] * COUNT, files)

    async with served(recomputing, bare) as stub:
        answer = await stub.ScoreCandidates(
            request(NAMES, tiny_manifest.fingerprint), timeout=TIMEOUT_SECONDS
        )

    assert [logit is None for logit in logits(answer)] == [True, *[False] * (COUNT - 1)]


async def test_a_bi_encoder_alone_is_refused_by_name(
    triton_client: TritonClient, tiny_manifest: Manifest, tmp_path: Path
) -> None:
    """A caller that asks rerank_svc all the same gets the error."""
    functions = tiny_manifest.functions
    alone = replace(
        tiny_manifest,
        functions=ServedFunctions(
            embed_text=functions.embed_text, embed_image=functions.embed_image
        ),
    )
    bare = write(tmp_path / "bare", tiny_manifest.fingerprint, [NONE] * COUNT, pictures())

    async with served(ServedModel(triton_client, alone), bare) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ScoreCandidates(
                request(NAMES, tiny_manifest.fingerprint), timeout=TIMEOUT_SECONDS
            )

    assert isinstance(error_from_rpc(caught.value, "rerank"), errors.CrossEncoderMissing)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def of_all(answer: pb.ScoreCandidatesResponse) -> NDArray[np.float64]:
    """The logits of the pictures that are there, float64 [COUNT]."""
    return np.array(logits(answer)[:COUNT], dtype=np.float64)


def logits(answer: pb.ScoreCandidatesResponse) -> list[float | None]:
    """The logits, None where there is no score."""
    return [each.match_logit if each.HasField("match_logit") else None for each in answer.scores]
