"""Every encoder keeps one contract, here and behind a socket."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from encoder_svc.servicer import EncoderServicer
from tandem import errors
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.content import (
    Content,
    Encoding,
    ImageContent,
    ImageTokens,
    TextContent,
    TextTokens,
    TruncationPolicy,
)
from tandem.contract.deadline import Deadline
from tandem.local.encoding.encoder import ModelEncoder
from tandem.local.encoding.local_encoder import LocalEncoder
from tandem.local.encoding.query_encodings import QueryEncodings
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_texts import ServedTexts
from tandem.model_io.pictures.image import MAX_IMAGE_BYTES, decode_image
from tandem.model_io.repository.followed_version import FollowedVersion
from tandem.model_io.repository.manifest import Manifest
from tandem.remote.encoder import RemoteEncoder
from tandem.remote.model import ModelServicer
from tandem.stages.encoding import EncodePurpose, Encoder
from tandem.v1.encoder_service_pb2_grpc import add_EncoderServiceServicer_to_server
from tandem.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tests.support.chassis.served import served
from tests.support.pictures.pictures import BLUE, encoded, noise, plain, png_header

TIMEOUT_SECONDS = 20.0


@pytest_asyncio.fixture(scope="module", params=["here", "behind a socket"])
async def encoder(
    request: pytest.FixtureRequest,
    tiny_served: ServedModel,
    tiny_repository: Path,
    tiny_manifest: Manifest,
) -> AsyncIterator[Encoder]:
    version = FollowedVersion(tiny_repository, tiny_manifest)
    texts = ServedTexts.open(tiny_repository, tiny_manifest)
    with ThreadPoolExecutor(2) as threads:
        turns = CallerTurns(threads, 2)
        made = ModelEncoder(tiny_served, texts, turns, version.number)
        local = LocalEncoder(made, QueryEncodings(made, turns, 1 << 20), version.describe)
        if request.param == "here":
            yield local
            return

        def register(server: object) -> None:
            add_EncoderServiceServicer_to_server(EncoderServicer(local, TIMEOUT_SECONDS), server)
            add_ModelServiceServicer_to_server(ModelServicer(version.describe), server)

        async with served(register) as channel:
            yield RemoteEncoder(channel)


def soon() -> Deadline:
    return Deadline.after(TIMEOUT_SECONDS)


@pytest.mark.parametrize("purpose", EncodePurpose)
async def test_a_mixed_batch_is_answered_in_order(
    encoder: Encoder,
    tiny_served: ServedModel,
    tiny_repository: Path,
    tiny_manifest: Manifest,
    purpose: EncodePurpose,
) -> None:
    """Each text and image gets what the model says of it alone."""
    pictures = [encoded(noise(seed), "PNG") for seed in (1, 2)]
    texts = ["two dogs", "one green tree right of four yellow stars " * 2]
    contents: list[Content] = [
        ImageContent(pictures[0]),
        TextContent(texts[0]),
        ImageContent(pictures[1]),
        TextContent(texts[1]),
    ]

    made = await encoder.encode(contents, soon(), purpose=purpose)

    assert made.fingerprint == tiny_manifest.fingerprint
    assert made.model_version == 1
    encodings = [each for each in made.outcomes if isinstance(each, Encoding)]
    for encoding, picture in zip(encodings[::2], pictures, strict=True):
        pixels = decode_image(picture, tiny_manifest.picture)[None]
        tokens = (await tiny_served.image_tokens(pixels, TIMEOUT_SECONDS)).values
        expected = (await tiny_served.encode_images(pixels, TIMEOUT_SECONDS)).values.embeddings
        assert isinstance(encoding.tokens, ImageTokens)
        # Batches of other sizes add in another order, and float16 rounds that up to 1e-3.
        np.testing.assert_allclose(encoding.tokens.values, tokens[0], atol=2e-3)
        np.testing.assert_allclose(encoding.embedding, expected[0], atol=1e-3)
    served_texts = ServedTexts.open(tiny_repository, tiny_manifest)
    for encoding, text in zip(encodings[1::2], texts, strict=True):
        ids = served_texts.windows(text, TruncationPolicy.ERROR).windows[0]
        expected = (await tiny_served.embed_texts([ids], TIMEOUT_SECONDS)).values
        assert isinstance(encoding.tokens, TextTokens)
        np.testing.assert_array_equal(encoding.tokens.ids, ids)
        np.testing.assert_allclose(encoding.embedding, expected[0], atol=1e-5)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (TextContent(" \n\t"), errors.TextEmpty),
        (TextContent("x" * 8_193), errors.TextTooLong),
        (TextContent("dogs " * 63), errors.TextTooLong),
        (ImageContent(encoded(noise(), "JPEG")[:900]), errors.ImageUnreadable),
        (ImageContent(png_header(13_000, 13_000)), errors.ImageTooLarge),
        (ImageContent(bytes(MAX_IMAGE_BYTES + 1)), errors.ImageTooLarge),
    ],
    ids=["white space", "bytes", "tokens", "cut", "bomb", "huge file"],
)
async def test_bad_content_fails_alone(
    encoder: Encoder, content: Content, error: type[errors.TandemError]
) -> None:
    """Those around it in the batch are encoded; it is refused by name, with advice."""
    picture = ImageContent(encoded(plain(BLUE), "WEBP"))

    made = await encoder.encode([TextContent("two dogs"), content, picture], soon())

    first, refused, last = made.outcomes
    assert isinstance(first, Encoding)
    assert type(refused) is error
    assert ";" in refused.message
    assert isinstance(last, Encoding)


async def test_a_long_text_is_read_as_the_policy_says(encoder: Encoder) -> None:
    [made] = (
        await encoder.encode(
            [TextContent("dogs " * 63)],
            soon(),
            purpose=EncodePurpose.QUERY,
            truncation_policy=TruncationPolicy.TRUNCATE,
        )
    ).outcomes

    assert isinstance(made, Encoding)
    assert made.text_use is not None
    assert made.text_use.is_truncated


@pytest.mark.parametrize("count", [0, 65])
async def test_the_size_of_a_batch_is_bounded(encoder: Encoder, count: int) -> None:
    with pytest.raises(errors.BatchSizeOutOfRange) as caught:
        await encoder.encode([TextContent("dogs")] * count, soon())

    assert caught.value.metadata == {
        "name": "contents",
        "got": str(count),
        "low": "1",
        "high": "64",
    }


async def test_a_short_deadline_is_exceeded_by_name(encoder: Encoder) -> None:
    with pytest.raises(errors.DeadlineExceeded):
        await encoder.encode([ImageContent(encoded(noise(9), "PNG"))], Deadline.after(0.0005))


async def test_the_model_is_described(encoder: Encoder, tiny_manifest: Manifest) -> None:
    assert (await encoder.describe_model(soon())).fingerprint == tiny_manifest.fingerprint
