"""tandem.wire: what goes out comes back, and what is wrong is refused by name."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tandem import wire
from tandem.contract.content import (
    Content,
    Encoding,
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
)
from tandem.contract.field_wire import MODALITY_WIRE, duration_to_proto
from tandem.contract.regions import RegionContent
from tandem.contract.search.answer_wire import (
    content_from_proto,
    content_to_proto,
    item_error_to_proto,
)
from tandem.errors import (
    ContentMissing,
    EmbeddingInvalid,
    RegionsInvalid,
    TextEmpty,
    TokensInvalid,
)
from tandem.v1 import content_pb2, error_reason_pb2


@pytest.mark.parametrize(
    "content",
    [
        TextContent("two dogs"),
        TextContent(""),
        ImageContent(b"\xff\xd8\xff"),
        RegionContent.of([[1, 2]], [[0, 0, 5, 5]], image_width=10, image_height=5),
    ],
)
def test_contents_survive_the_wire(content: Content) -> None:
    """An empty text is a text: whether it has words is the encoder's question."""
    assert content_from_proto(content_to_proto(content)) == content


def test_regions_that_do_not_fit_their_counts_are_refused() -> None:
    """Before anything is encoded."""
    message = content_pb2.RegionContent(
        features=bytes(8), boxes=bytes(16), region_count=2, feature_width=1, image_width=1,
        image_height=1,
    )  # fmt: skip

    with pytest.raises(RegionsInvalid, match="boxes have 16 bytes instead of 16 a region"):
        content_from_proto(content_pb2.Content(regions=message))


def test_content_of_no_modality_is_missing() -> None:
    """An unset oneof is neither text nor image."""
    with pytest.raises(ContentMissing):
        content_from_proto(content_pb2.Content())


@pytest.mark.parametrize("modality", list(Modality))
def test_modalities_survive_the_wire(modality: Modality) -> None:
    """Both of them."""
    assert MODALITY_WIRE.from_proto(MODALITY_WIRE.to_proto(modality)) is modality


@pytest.mark.parametrize("value", [0, 3, -1])
def test_unset_and_unknown_modalities_are_none(value: int) -> None:
    """Proto3 enums are open: a newer client may send what we do not know."""
    assert MODALITY_WIRE.from_proto(value) is None


def test_embeddings_are_little_endian_float32() -> None:
    """0.6, 0.8 by hand, as any language would write it."""
    values = struct.pack("<2f", 0.6, 0.8)

    embedding = wire.embedding_from_proto(content_pb2.Embedding(values=values))

    assert embedding.dtype == np.float32
    assert embedding.tolist() == pytest.approx([0.6, 0.8])
    assert wire.embedding_to_proto(embedding).values == values


_BAD_EMBEDDINGS = [(b"", "0 bytes"), (b"\0" * 7, "7 bytes")]


@pytest.mark.parametrize(("values", "why"), _BAD_EMBEDDINGS)
def test_bytes_that_are_no_floats_are_refused_with_their_count(values: bytes, why: str) -> None:
    with pytest.raises(EmbeddingInvalid, match=why):
        wire.embedding_from_proto(content_pb2.Embedding(values=values))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        *_BAD_EMBEDDINGS[1:5],
        (struct.pack("<2d", 0.6, 0.8), "dimensions, the batch's first"),
    ],
)
def test_a_bad_embedding_is_refused_at_any_position(values: bytes, why: str) -> None:
    """Among good ones, with the cause; also float64, which has twice as many values."""
    good = content_pb2.Embedding(values=struct.pack("<2f", 0.6, 0.8))
    for place in range(3):
        messages = [good, good]
        messages.insert(place, content_pb2.Embedding(values=values))

        with pytest.raises(EmbeddingInvalid, match=why):
            wire.embeddings_from_proto(messages)


@given(st.integers(1, 5), st.integers(1, 600))
def test_a_batch_of_embeddings_is_each_of_them(count: int, dimension: int) -> None:
    """The same values as one by one."""
    embeddings_ND = np.random.default_rng(count).standard_normal((count, dimension))
    embeddings_ND /= np.linalg.norm(embeddings_ND, axis=1, keepdims=True)
    messages = [wire.embedding_to_proto(each) for each in embeddings_ND.astype(np.float32)]

    read_ND = wire.embeddings_from_proto(messages)

    assert read_ND.dtype == np.float32
    for message, read_D in zip(messages, read_ND, strict=True):
        np.testing.assert_array_equal(read_D, wire.embedding_from_proto(message))


@given(hnp.arrays(np.int32, st.integers(1, 64), elements=st.integers(0, 2**31 - 1)))
def test_text_tokens_survive_the_wire(ids: NDArray[np.int32]) -> None:
    """Any count of any ids."""
    tokens = wire.tokens_from_proto(wire.tokens_to_proto(TextTokens(ids)))

    assert isinstance(tokens, TextTokens)
    assert tokens.ids.dtype == np.int32
    np.testing.assert_array_equal(tokens.ids, ids)


@given(
    hnp.arrays(
        np.float16,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=16),
        elements=st.floats(-65504, 65504, width=16),
    )
)
def test_image_tokens_survive_the_wire(values: NDArray[np.float16]) -> None:
    """Any rows of any width."""
    tokens = wire.tokens_from_proto(wire.tokens_to_proto(ImageTokens(values)))

    assert isinstance(tokens, ImageTokens)
    assert tokens.values.dtype == np.float16
    np.testing.assert_array_equal(tokens.values, values)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (content_pb2.ContentTokens(), "missing"),
        (content_pb2.ContentTokens(text=content_pb2.TextTokens()), "0 bytes"),
        (content_pb2.ContentTokens(text=content_pb2.TextTokens(ids=b"\0" * 6)), "6 bytes"),
        (content_pb2.ContentTokens(text=content_pb2.TextTokens(ids=b"\xff" * 4)), "negative"),
        (
            content_pb2.ContentTokens(
                image=content_pb2.ImageTokens(values=b"\0" * 8, token_count=2, width=3)
            ),
            "8 bytes are not 2 x 3",
        ),
        (
            content_pb2.ContentTokens(
                image=content_pb2.ImageTokens(values=b"\0" * 12, token_count=-2, width=-3)
            ),
            "not -2 x -3",
        ),
        (
            content_pb2.ContentTokens(
                image=content_pb2.ImageTokens(values=b"\x00\x7e", token_count=1, width=1)
            ),
            "NaN",
        ),
    ],
)
def test_bad_tokens_are_refused_with_the_cause(
    message: content_pb2.ContentTokens, why: str
) -> None:
    """Two negatives make a positive product, which is no excuse; 0x7e00 is float16's NaN."""
    with pytest.raises(TokensInvalid, match=why):
        wire.tokens_from_proto(message)


def test_encodings_survive_the_wire() -> None:
    """Embedding and tokens together."""
    embedding = np.array([0.6, 0.8], dtype=np.float32)
    sent = Encoding(embedding, TextTokens(np.array([1, 7, 2], dtype=np.int32)))

    received = wire.ENCODING_WIRE.from_proto(wire.ENCODING_WIRE.to_proto(sent))

    np.testing.assert_array_equal(received.embedding, embedding)
    assert isinstance(received.tokens, TextTokens)
    assert received.tokens.ids.tolist() == [1, 7, 2]


def test_received_arrays_are_read_only() -> None:
    """They are views of the message, so writing would change what others read of it."""
    message = wire.embedding_to_proto(np.array([1.0], dtype=np.float32))

    assert not wire.embedding_from_proto(message).flags.writeable


def test_item_errors_carry_reason_and_message() -> None:
    """The enum's value and the words."""
    message = item_error_to_proto(TextEmpty())

    assert message.reason == error_reason_pb2.ERROR_REASON_TEXT_EMPTY
    assert message.message == TextEmpty().message


@pytest.mark.parametrize(
    ("seconds", "whole", "nanos"),
    [(0.0, 0, 0), (1.5, 1, 500_000_000), (1e-9, 0, 1), (-1e-7, 0, 0)],
)
def test_durations_are_seconds_and_nanoseconds(seconds: float, whole: int, nanos: int) -> None:
    """Negative spans do not exist."""
    duration = duration_to_proto(seconds)

    assert (duration.seconds, duration.nanos) == (whole, nanos)
