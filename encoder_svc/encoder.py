"""Encodes contents: tokenizes texts, decodes images, and runs the bi-encoder."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import (
    Content,
    Encoding,
    ImageTokens,
    TextContent,
    TextTokens,
    TextUse,
    TruncationPolicy,
)
from tandem.contract.inference_cost import InferenceCost
from tandem.errors import DeadlineExceeded, TandemError
from tandem.model_io.canary import check_encoding
from tandem.model_io.cost_metrics import count_inference
from tandem.model_io.image import decode_image
from tandem.model_io.model_version import FIRST_VERSION
from tandem.model_io.preprocessing import ImageRules
from tandem.model_io.priority import Priority
from tandem.model_io.served_joint_model import ServedJointModel
from tandem.model_io.text import TextPreprocessor, TextWindows

Pixels = NDArray[np.uint8]
T = TypeVar("T")
R = TypeVar("R")

# Any tokenizer here splits this many characters within a few tenths of a millisecond.
_SHORT_TEXT_LENGTH = 256


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The outcomes in the order of the contents, with times and cost."""

    outcomes: Sequence[Encoding | TandemError]
    preprocess_seconds: float
    inference_seconds: float
    cost: InferenceCost = field(default_factory=InferenceCost)
    is_model_unavailable: bool = False
    """Whether the model is unavailable and the encodings came from the cache."""
    model_version: int = FIRST_VERSION
    """The version of the model that made them."""


class Encoder:
    """Encodes batches of contents of either modality."""

    def __init__(
        self,
        model: ServedJointModel,
        text_preprocessor: TextPreprocessor,
        threads: Executor,
        serving_version: Callable[[], int] = lambda: FIRST_VERSION,
    ) -> None:
        self._model = model
        self._text_preprocessor = text_preprocessor
        self._threads = threads
        self._serving_version = serving_version

    @property
    def serving_version(self) -> int:
        """Returns the model version for a call that starts now."""
        return self._serving_version()

    @property
    def fingerprint(self) -> str:
        """Returns the fingerprint of the model."""
        return self._model.manifest.fingerprint

    async def encode(
        self,
        contents: Sequence[Content | TandemError],
        timeout_seconds: float,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
        priority: Priority = Priority.INGEST,
        model_version: int | None = None,
    ) -> EncodedBatch:
        """Returns an encoding or an error for each content.

        One version of the model encodes them all, by default the one that serves. An input that is
        an error stays one. Raises only errors of the whole call: of the model, or the deadline.
        """
        start_time = time.monotonic()
        deadline_time = start_time + timeout_seconds
        model = self._model.at(self.serving_version if model_version is None else model_version)
        texts: dict[int, TextWindows] = {}
        pictures: dict[int, Pixels] = {}
        outcomes: dict[int, Encoding | TandemError] = {}
        prepare = partial(
            self._prepare, truncation_policy=truncation_policy, deadline_time=deadline_time
        )
        if _is_short_text(contents):
            prepared: Sequence[TextWindows | Pixels | TandemError] = [prepare(contents[0])]
        else:
            prepared = await self._in_threads(prepare, contents)
        for number, result in enumerate(prepared):
            if isinstance(result, TandemError):
                outcomes[number] = result
            elif isinstance(result, TextWindows):
                texts[number] = result
            else:
                pictures[number] = result
        prepared_time = time.monotonic()
        (read, text_cost), (seen, image_cost) = await asyncio.gather(
            _encode_texts(model, texts, deadline_time, priority),
            _encode_images(model, pictures, deadline_time, priority),
        )
        outcomes |= read | seen
        count_inference("encoder", cost := text_cost + image_cost)
        return EncodedBatch(
            [outcomes[number] for number in range(len(contents))],
            prepared_time - start_time,
            time.monotonic() - prepared_time,
            cost,
            model_version=model.version,
        )

    async def check(self) -> None:
        """Encodes one text and one black image; raises a TandemError if the model fails."""
        await check_encoding(self._model.at(self.serving_version))

    def _prepare(
        self,
        content: Content | TandemError,
        truncation_policy: TruncationPolicy,
        deadline_time: float,
    ) -> TextWindows | Pixels | TandemError:
        # Past the deadline nothing waits for the result, so do not start.
        _left(deadline_time)
        try:
            if isinstance(content, TandemError):
                return content
            if isinstance(content, TextContent):
                return self._text_preprocessor.windows(content.text, truncation_policy)
            return decode_image(
                content.image_bytes, ImageRules(size=self._model.manifest.image_size)
            )
        except TandemError as error:
            return error.kept()

    async def _in_threads(self, function: Callable[[T], R], arguments: Sequence[T]) -> Sequence[R]:
        # Pillow and the tokenizer both release the interpreter lock while they work.
        loop = asyncio.get_running_loop()
        calls = (loop.run_in_executor(self._threads, function, each) for each in arguments)
        return await asyncio.gather(*calls)


async def _encode_texts(
    model: ServedJointModel,
    texts: Mapping[int, TextWindows],
    deadline_time: float,
    priority: Priority,
) -> tuple[dict[int, Encoding], InferenceCost]:
    if not texts:
        return {}, InferenceCost()
    windows = [ids for text in texts.values() for ids in text.windows]
    embeddings = await model.embed_texts(windows, _left(deadline_time), priority)
    encodings = (
        Encoding(embedding, TextTokens(ids))
        for embedding, ids in zip(embeddings.values, windows, strict=True)
    )
    return {
        number: _of_windows(list(islice(encodings, len(text.windows))), text.text_use)
        for number, text in texts.items()
    }, embeddings.cost


async def _encode_images(
    model: ServedJointModel,
    pictures: Mapping[int, Pixels],
    deadline_time: float,
    priority: Priority,
) -> tuple[dict[int, Encoding], InferenceCost]:
    if not pictures:
        return {}, InferenceCost()
    pixels = np.stack(list(pictures.values()))
    tokens = await model.image_tokens(pixels, _left(deadline_time), priority)
    embeddings = await model.embed_images(tokens.values, _left(deadline_time), priority)
    return {
        number: Encoding(embedding, ImageTokens(rows))
        for number, rows, embedding in zip(pictures, tokens.values, embeddings.values, strict=True)
    }, tokens.cost + embeddings.cost


def _of_windows(encodings: Sequence[Encoding], text_use: TextUse) -> Encoding:
    first, *further = encodings
    return replace(first, text_use=text_use, further_windows=tuple(further))


def _is_short_text(contents: Sequence[Content | TandemError]) -> bool:
    """Returns whether this is one short query, which tokenizes faster than a thread wakes up."""
    match contents:
        case [TextContent(text)]:
            return len(text) <= _SHORT_TEXT_LENGTH
        case _:
            return False


def _left(deadline_time: float) -> float:
    """Returns the seconds until `deadline_time`; raises DeadlineExceeded if none are left."""
    seconds = deadline_time - time.monotonic()
    if seconds <= 0:
        raise DeadlineExceeded(what="the encoding of the contents")
    return seconds
