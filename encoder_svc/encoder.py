"""Contents into encodings: words split, pictures decoded, both through the bi-encoder."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.content import (
    Content,
    Encoding,
    ImageTokens,
    TextContent,
    TextTokens,
)
from tandem.errors import DeadlineExceeded, TandemError
from tandem.model_io.image import decode_image
from tandem.model_io.priority import Priority
from tandem.model_io.served_joint_model import ServedJointModel, TokenIds
from tandem.model_io.text import TextPreprocessor

Pixels = NDArray[np.uint8]
T = TypeVar("T")
R = TypeVar("R")

_CANARY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Outcomes in the order of the contents, and where the time went."""

    outcomes: Sequence[Encoding | TandemError]
    preprocess_seconds: float
    inference_seconds: float


class Encoder:
    """Encodes batches of contents of either modality."""

    def __init__(
        self, model: ServedJointModel, text_preprocessor: TextPreprocessor, threads: Executor
    ) -> None:
        self._model = model
        self._text_preprocessor = text_preprocessor
        self._threads = threads

    @property
    def fingerprint(self) -> str:
        """Names the model."""
        return self._model.manifest.fingerprint

    async def encode(
        self,
        contents: Sequence[Content | TandemError],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> EncodedBatch:
        """Returns an encoding, or why there is none, for each content.

        What is already an error stays one. Raises only what concerns them all: the model.
        """
        start_time = time.monotonic()
        deadline_time = start_time + timeout_seconds
        texts: dict[int, TokenIds] = {}
        pictures: dict[int, Pixels] = {}
        outcomes: dict[int, Encoding | TandemError] = {}
        prepared = await self._in_threads(self._prepare, contents)
        for number, (content, result) in enumerate(zip(contents, prepared, strict=True)):
            if isinstance(result, TandemError):
                outcomes[number] = result
            elif isinstance(content, TextContent):
                texts[number] = result
            else:
                pictures[number] = result
        prepared_time = time.monotonic()
        for encoded in await asyncio.gather(
            self._encode_texts(texts, deadline_time, priority),
            self._encode_images(pictures, deadline_time, priority),
        ):
            outcomes.update(encoded)
        return EncodedBatch(
            [outcomes[number] for number in range(len(contents))],
            prepared_time - start_time,
            time.monotonic() - prepared_time,
        )

    async def check(self) -> None:
        """Encodes one text and one black picture; raises a TandemError where the model cannot."""
        size = self._model.manifest.image_size
        pixels = np.zeros((1, size, size, 3), dtype=np.uint8)
        tokens = await self._model.image_tokens(pixels, _CANARY_SECONDS, Priority.QUERY)
        await self._model.embed_images(tokens.values, _CANARY_SECONDS, Priority.QUERY)
        ids = np.array([self._model.manifest.cls_id, self._model.manifest.sep_id], dtype=np.int32)
        await self._model.embed_texts([ids], _CANARY_SECONDS, Priority.QUERY)

    def _prepare(self, content: Content | TandemError) -> NDArray[Any] | TandemError:
        try:
            if isinstance(content, TandemError):
                return content
            if isinstance(content, TextContent):
                return self._text_preprocessor.token_ids(content.text)
            return decode_image(content.image_bytes, self._model.manifest.image_size)
        except TandemError as error:
            return error

    async def _in_threads(self, function: Callable[[T], R], arguments: Sequence[T]) -> Sequence[R]:
        # Pillow and the tokenizer both let go of the interpreter while they work.
        loop = asyncio.get_running_loop()
        calls = (loop.run_in_executor(self._threads, function, each) for each in arguments)
        return await asyncio.gather(*calls)

    async def _encode_texts(
        self, texts: Mapping[int, TokenIds], deadline_time: float, priority: Priority
    ) -> Mapping[int, Encoding]:
        if not texts:
            return {}
        embeddings = await self._model.embed_texts(
            list(texts.values()), _left(deadline_time), priority
        )
        return {
            number: Encoding(embedding, TextTokens(ids))
            for (number, ids), embedding in zip(texts.items(), embeddings.values, strict=True)
        }

    async def _encode_images(
        self, pictures: Mapping[int, Pixels], deadline_time: float, priority: Priority
    ) -> Mapping[int, Encoding]:
        if not pictures:
            return {}
        pixels = np.stack(list(pictures.values()))
        tokens = await self._model.image_tokens(pixels, _left(deadline_time), priority)
        embeddings = await self._model.embed_images(tokens.values, _left(deadline_time), priority)
        return {
            number: Encoding(embedding, ImageTokens(rows))
            for number, rows, embedding in zip(
                pictures, tokens.values, embeddings.values, strict=True
            )
        }


def _left(deadline_time: float) -> float:
    """Returns the seconds until `deadline_time`; raises DeadlineExceeded where there are none."""
    seconds = deadline_time - time.monotonic()
    if seconds <= 0:
        raise DeadlineExceeded(what="the encoding of the contents")
    return seconds
