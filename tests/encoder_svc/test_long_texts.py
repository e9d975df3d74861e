"""EncodeContents of texts that are longer than the model reads, before a real Triton."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import ImageContent, TextContent, TextTokens, TextUse, TruncationPolicy
from tandem.contract.search.answer_wire import content_to_proto
from tandem.contract.search.query_wire import TRUNCATION_POLICY_WIRE
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_texts import ServedTexts
from tandem.model_io.repository.manifest import Manifest
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tandem.wire import ENCODING_WIRE
from tests.encoder_svc.test_servicer import TIMEOUT_SECONDS, served_channel
from tests.support.pictures.pictures import encoded, plain

SHORT = "two dogs left of one umbrella"
LONG = " ".join([SHORT] * 20)


@pytest.fixture(scope="module")
def served_texts(tiny_repository: Path, tiny_manifest: Manifest) -> ServedTexts:
    return ServedTexts.open(tiny_repository, tiny_manifest)


@pytest_asyncio.fixture(scope="module")
async def stub(
    tiny_served: ServedModel, served_texts: ServedTexts
) -> AsyncIterator[EncoderServiceStub]:
    async with served_channel(tiny_served, served_texts) as channel:
        yield EncoderServiceStub(channel)


async def encode(
    stub: EncoderServiceStub, policy: TruncationPolicy, *texts: str
) -> pb.EncodeContentsResponse:
    """Encodes a picture, then the texts."""
    contents = [ImageContent(encoded(plain(), "PNG")), *map(TextContent, texts)]
    return await stub.EncodeContents(
        pb.EncodeContentsRequest(
            contents=map(content_to_proto, contents),  # type: ignore[arg-type]
            truncation_policy=TRUNCATION_POLICY_WIRE.to_proto(policy),
        ),
        timeout=TIMEOUT_SECONDS,
    )


def truncated_count(policy: TruncationPolicy) -> float:
    """Returns what Prometheus would read."""
    name = "tandem_encoder_truncated_texts_total"
    return REGISTRY.get_sample_value(name, {"policy": policy.value}) or 0.0


@pytest.mark.parametrize("policy", list(TruncationPolicy))
async def test_every_text_tells_how_much_was_read(
    stub: EncoderServiceStub, served_texts: ServedTexts, policy: TruncationPolicy
) -> None:
    """Of a short one all, whatever the policy; of a picture nothing is said."""
    picture, text = (await encode(stub, policy, SHORT)).results

    assert not picture.encoding.HasField("text_use")
    [ids] = served_texts.windows(SHORT, TruncationPolicy.ERROR).windows
    count = len(ids)
    assert ENCODING_WIRE.from_proto(text.encoding).text_use == TextUse(count, count)
    assert not text.encoding.text_use.truncated
    assert not text.encoding.further_windows


async def test_truncation_encodes_the_beginning(
    stub: EncoderServiceStub, tiny_served: ServedModel, served_texts: ServedTexts
) -> None:
    """As the model says of these tokens alone; the counter tells of the one that was cut."""
    before = truncated_count(TruncationPolicy.TRUNCATE)

    response = await encode(stub, TruncationPolicy.TRUNCATE, LONG, SHORT)

    read = served_texts.windows(LONG, TruncationPolicy.TRUNCATE)
    cut = ENCODING_WIRE.from_proto(response.results[1].encoding)
    assert response.results[1].encoding.text_use.truncated
    assert cut.text_use == read.text_use
    assert isinstance(cut.tokens, TextTokens)
    np.testing.assert_array_equal(cut.tokens.ids, read.windows[0])
    expected = (await tiny_served.embed_texts(read.windows, TIMEOUT_SECONDS)).values
    np.testing.assert_allclose(cut.embedding, expected[0], atol=1e-5)
    assert truncated_count(TruncationPolicy.TRUNCATE) == before + 1


async def test_each_window_is_encoded_as_a_separate_text(
    stub: EncoderServiceStub, tiny_served: ServedModel, served_texts: ServedTexts
) -> None:
    """In its text's order, though all texts' windows share batches; nothing is cut, or counted."""
    before = truncated_count(TruncationPolicy.BEST_WINDOW)

    response = await encode(stub, TruncationPolicy.BEST_WINDOW, LONG, SHORT, LONG)

    read = served_texts.windows(LONG, TruncationPolicy.BEST_WINDOW)
    assert len(read.windows) > 2
    expected = (await tiny_served.embed_texts(read.windows, TIMEOUT_SECONDS)).values
    for result in (response.results[1], response.results[3]):
        first = ENCODING_WIRE.from_proto(result.encoding)
        assert first.text_use == read.text_use
        for window, ids, embedding in zip(
            (first, *first.further_windows), read.windows, expected, strict=True
        ):
            assert isinstance(window.tokens, TextTokens)
            np.testing.assert_array_equal(window.tokens.ids, ids)
            np.testing.assert_allclose(window.embedding, embedding, atol=1e-5)
    assert not response.results[2].encoding.further_windows
    assert truncated_count(TruncationPolicy.BEST_WINDOW) == before


async def test_a_gap_between_windows_is_counted(stub: EncoderServiceStub) -> None:
    """32 windows do not hold 10,000 tokens, and the answer does not hide it."""
    before = truncated_count(TruncationPolicy.BEST_WINDOW)

    response = await encode(stub, TruncationPolicy.BEST_WINDOW, "dogs " * 9_998)

    encoding = response.results[1].encoding
    assert len(encoding.further_windows) == 31
    assert encoding.text_use.token_count == 10_000
    assert encoding.text_use.used_token_count < 10_000
    assert encoding.text_use.truncated
    assert truncated_count(TruncationPolicy.BEST_WINDOW) == before + 1
