"""Converts contents between protobuf messages and our own types.

What a message can say and a record cannot hold is refused here; the records check the rest.

Arrays travel as little-endian bytes. Received arrays are read-only views of the message's bytes,
without a copy.

Shapes: T token ids of a text, R rows of an image, D values in a row, d dimensions.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import (
    Encoding,
    ImageTokens,
    TextTokens,
    Tokens,
)
from tandem.contract.record_wire import Field, RecordWire
from tandem.contract.search.answer_wire import TEXT_USE_WIRE
from tandem.errors import EmbeddingInvalid, TokensInvalid
from tandem.stages.finite import are_finite
from tandem.v1 import content_pb2, encoder_service_pb2


def embedding_from_proto(message: content_pb2.Embedding) -> NDArray[np.float32]:
    """Returns the embedding, float32 [d]; raises `EmbeddingInvalid` for other bytes."""
    if not message.values or len(message.values) % 4:
        raise EmbeddingInvalid(why=f"{len(message.values)} bytes are not float32 values")
    return np.frombuffer(message.values, dtype="<f4")


def embeddings_from_proto(messages: Sequence[content_pb2.Embedding]) -> NDArray[np.float32]:
    """Returns embeddings of equal length, float32 [N, d].

    Raises `EmbeddingInvalid` unless each has as many values as the first, and at least one.
    """
    # All at once: NumPy releases the interpreter lock for each conversion, so that one by one four
    # threads took 2.7 times as long as one thread.
    values = [message.values for message in messages]
    byte_count = len(values[0]) if values else 0
    for each in values:
        if not each or len(each) % 4:
            raise EmbeddingInvalid(why=f"{len(each)} bytes are not float32 values")
        if len(each) != byte_count:
            raise EmbeddingInvalid(
                why=f"it has {len(each) // 4} dimensions, the batch's first {byte_count // 4}"
            )
    return np.frombuffer(b"".join(values), dtype="<f4").reshape(len(values), byte_count // 4)


def embedding_to_proto(embedding: NDArray[np.float32]) -> content_pb2.Embedding:
    """Returns the message for `embedding`."""
    return content_pb2.Embedding(values=embedding.astype("<f4", copy=False).tobytes())


def tokens_from_proto(message: content_pb2.ContentTokens, *, may_be_empty: bool = False) -> Tokens:
    """Returns the tokens; raises `TokensInvalid` if missing, of a wrong shape or not finite.

    Empty ones are those of a model without a cross-encoder.
    """
    match message.WhichOneof("tokens"):
        case "text":
            if may_be_empty and not message.text.ids:
                return TextTokens(np.zeros(0, dtype=np.int32))
            return _text_tokens_from_proto(message.text)
        case "image":
            if may_be_empty and not message.image.values:
                return ImageTokens(np.zeros((0, 0), dtype=np.float16))
            return _image_tokens_from_proto(message.image)
        case _:
            raise TokensInvalid(why="they are missing")


def tokens_to_proto(tokens: Tokens) -> content_pb2.ContentTokens:
    """Returns the message for `tokens`."""
    if isinstance(tokens, TextTokens):
        ids = tokens.ids.astype("<i4", copy=False).tobytes()
        return content_pb2.ContentTokens(text=content_pb2.TextTokens(ids=ids))
    token_count, width = tokens.values.shape
    values = tokens.values.astype("<f2", copy=False).tobytes()
    return content_pb2.ContentTokens(
        image=content_pb2.ImageTokens(values=values, token_count=token_count, width=width)
    )


def _text_tokens_from_proto(message: content_pb2.TextTokens) -> TextTokens:
    if not message.ids or len(message.ids) % 4:
        raise TokensInvalid(why=f"{len(message.ids)} bytes are not int32 token ids")
    ids = np.frombuffer(message.ids, dtype="<i4")
    if ids.min() < 0:
        raise TokensInvalid(why="a token id is negative")
    return TextTokens(ids)


def _image_tokens_from_proto(message: content_pb2.ImageTokens) -> ImageTokens:
    token_count, width = message.token_count, message.width
    if token_count < 1 or width < 1 or len(message.values) != 2 * token_count * width:
        raise TokensInvalid(
            why=f"{len(message.values)} bytes are not {token_count} x {width} float16 values"
        )
    values = np.frombuffer(message.values, dtype="<f2").reshape(token_count, width)
    if not are_finite(values):
        raise TokensInvalid(why="they contain NaN or infinity")
    return ImageTokens(values)


EMBEDDING_WIRE = Field(embedding_to_proto, embedding_from_proto)
TOKENS_WIRE = Field(tokens_to_proto, partial(tokens_from_proto, may_be_empty=True))
"""A model without a cross-encoder makes empty ones, and a remote cross-encoder reads none."""


def _windows_to_proto(windows: Iterable[Encoding]) -> list[encoder_service_pb2.Encoding]:
    return list(map(ENCODING_WIRE.to_proto, windows))


def _windows_from_proto(messages: Iterable[encoder_service_pb2.Encoding]) -> tuple[Encoding, ...]:
    return tuple(map(ENCODING_WIRE.from_proto, messages))


ENCODING_WIRE = RecordWire(
    Encoding,
    encoder_service_pb2.Encoding,
    embedding=EMBEDDING_WIRE,
    tokens=TOKENS_WIRE,
    text_use=TEXT_USE_WIRE,
    further_windows=Field(_windows_to_proto, _windows_from_proto),
)
