"""Encodes contents: tokenizes texts, decodes images, and runs the bi-encoder."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.telemetry.model_metrics import count_inference
from tandem.contract.content import (
    Content,
    Encoding,
    ImageTokens,
    TextContent,
    TextTokens,
    TextUse,
    TruncationPolicy,
)
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import parts_within
from tandem.contract.regions import RegionContent
from tandem.errors import ImageInputUnsupported, TandemError
from tandem.model_io.inference.canary import check_encoding
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_texts import ServedText, ServedTexts
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image import decode_image, decoding_bytes
from tandem.model_io.pictures.region_vectors import content_vectors
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.model_version import FIRST_VERSION
from tandem.model_io.repository.priority import Priority
from tandem.model_io.repository.served_functions import TokenSource
from tandem.stages.encoding import EncodedBatch

Pixels = NDArray[np.uint8]
Kind = TypeVar("Kind")
_Encoded = tuple[dict[int, Encoding], InferenceCost]
_Encoding = Coroutine[Any, Any, _Encoded]
_Given = Content | TandemError

# As errors name them.
_PICTURES, _REGIONS = "images", "a detector's regions"
# Any tokenizer here splits this many characters within a few tenths of a millisecond.
_SHORT_TEXT_LENGTH = 256
# Characters of short texts that one thread splits together, in a few milliseconds: to wake a thread
# for each text takes longer than to split it.
_PIECE_LENGTH = 4096
# The work that DeadlineExceeded names.
_WORK = "the encoding of the contents"


@dataclass(frozen=True, slots=True, eq=False)
class _Picture:
    """Holds a picture's pixels, and those of its tokens, which other rules may have fitted."""

    pixels: Pixels
    pair_pixels: Pixels


@dataclass(frozen=True, slots=True, eq=False)
class _Regions:
    """Holds a detector's regions as the model reads them, float16 [R, D]."""

    vectors: NDArray[np.float16]


_Prepared = ServedText | _Picture | _Regions | TandemError


class ModelEncoder:
    """Encodes batches of contents of either modality."""

    def __init__(
        self,
        model: ServedModel,
        texts: ServedTexts,
        turns: CallerTurns,
        serving_version: Callable[[], int] = lambda: FIRST_VERSION,
        heif: HeifReader | None = None,
    ) -> None:
        """Refuses HEIC and AVIF without a reader of them."""
        self._heif = heif
        self._model = model
        self._texts = texts
        self._turns = turns
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
        contents: Sequence[_Given],
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
        deadline = Deadline.after(timeout_seconds)
        model = self._model.at(self.serving_version if model_version is None else model_version)
        prepare = partial(
            self._prepare,
            truncation_policy=truncation_policy,
            priority=priority,
            deadline=deadline,
        )
        if len(contents) == 1 and _length(contents[0]) <= _SHORT_TEXT_LENGTH:
            prepared = [prepare(contents[0])]  # faster than a thread wakes up
        else:
            # Pillow and the tokenizer both release the interpreter lock while they work.
            pieces: list[list[_Prepared]] = await asyncio.gather(
                *(
                    self._turns.run(
                        partial(list, map(prepare, piece)), sum(map(decoding_bytes, piece))
                    )
                    for piece in parts_within(contents, _length, _PIECE_LENGTH)
                )
            )
            prepared = list(chain.from_iterable(pieces))
        outcomes: dict[int, Encoding | TandemError] = {**_of_kind(TandemError, prepared)}
        texts, pictures = _of_kind(ServedText, prepared), _of_kind(_Picture, prepared)
        regions = _of_kind(_Regions, prepared)
        prepared_time = time.monotonic()
        cost = InferenceCost()
        for encoded, part_cost in await _all_kinds(
            _encode_texts(model, texts, deadline, priority) if texts else None,
            _encode_images(model, pictures, deadline, priority) if pictures else None,
            _encode_regions(model, regions, deadline, priority) if regions else None,
        ):
            outcomes |= encoded
            cost += part_cost
        count_inference("encoder", cost)
        return EncodedBatch(
            [outcomes[number] for number in range(len(contents))],
            self.fingerprint,
            cost,
            model_version=model.version,
            preprocess_seconds=prepared_time - start_time,
            inference_seconds=time.monotonic() - prepared_time,
        )

    async def check(self) -> None:
        """Encodes one text and one black image; raises a TandemError if the model fails."""
        await check_encoding(self._model.at(self.serving_version))

    def _prepare(
        self,
        content: _Given,
        truncation_policy: TruncationPolicy,
        priority: Priority,
        deadline: Deadline,
    ) -> _Prepared:
        # Past the deadline nothing waits for the result, so do not start.
        deadline.left_for(_WORK)
        try:
            if isinstance(content, TandemError):
                return content
            if isinstance(content, TextContent):
                return self._texts.windows(content.text, truncation_policy)
            if isinstance(content, RegionContent):
                return self._regions(content)
            return self._picture(content.image_bytes, priority, deadline)
        except TandemError as error:
            return error.kept()

    def _picture(self, image_bytes: bytes, priority: Priority, deadline: Deadline) -> "_Picture":
        manifest = self._model.manifest
        if manifest.image is None:
            raise ImageInputUnsupported(reads=_REGIONS, got=_PICTURES)
        pixels = decode_image(image_bytes, manifest.image, self._heif, deadline)
        pair_rules = manifest.pair_image
        if pair_rules in (None, manifest.image) or not _wants_tokens(manifest, priority):
            return _Picture(pixels, pixels)
        return _Picture(pixels, decode_image(image_bytes, pair_rules, self._heif, deadline))

    def _regions(self, content: RegionContent) -> "_Regions":
        rules = self._model.manifest.regions
        if rules is None:
            raise ImageInputUnsupported(reads=_PICTURES, got=_REGIONS)
        return _Regions(content_vectors(content, rules))


def _of_kind(kind: type[Kind], prepared: Sequence[object]) -> dict[int, Kind]:
    """Returns those of one kind, by their place."""
    return {number: each for number, each in enumerate(prepared) if isinstance(each, kind)}


async def _all_kinds(*encodings: _Encoding | None) -> Sequence[_Encoded]:
    """Returns the results of encoding each kind; a single kind, as a query's, needs no task."""
    wanted = [each for each in encodings if each is not None]
    if len(wanted) == 1:
        return [await wanted[0]]
    return await asyncio.gather(*wanted)


async def _encode_texts(
    model: ServedModel,
    texts: Mapping[int, ServedText],
    deadline: Deadline,
    priority: Priority,
) -> _Encoded:
    windows = [ids for text in texts.values() for ids in text.windows]
    pair_windows = [ids for text in texts.values() for ids in text.pair_windows]
    embeddings = await model.embed_texts(windows, deadline.left_for(_WORK), priority)
    encodings = (
        Encoding(embedding, TextTokens(ids))
        for embedding, ids in zip(embeddings.values, pair_windows, strict=True)
    )
    return {
        number: _of_windows(list(islice(encodings, len(text.windows))), text.text_use)
        for number, text in texts.items()
    }, embeddings.cost


async def _encode_images(
    model: ServedModel,
    pictures: Mapping[int, _Picture],
    deadline: Deadline,
    priority: Priority,
) -> _Encoded:
    pixels = np.stack([each.pixels for each in pictures.values()])
    encoded = await model.encode_images(pixels, deadline.left_for(_WORK), priority)
    tokens, cost = encoded.values.tokens, encoded.cost
    if not _wants_tokens(model.manifest, priority):
        tokens = np.zeros((len(pixels), 0, 0), dtype=np.float16)
    elif tokens is None:
        made = await model.image_tokens(
            np.stack([each.pair_pixels for each in pictures.values()]),
            deadline.left_for(_WORK),
            priority,
        )
        tokens, cost = made.values, cost + made.cost
    return {
        number: Encoding(embedding, ImageTokens(rows))
        for number, rows, embedding in zip(pictures, tokens, encoded.values.embeddings, strict=True)
    }, cost


async def _encode_regions(
    model: ServedModel,
    regions: Mapping[int, _Regions],
    deadline: Deadline,
    priority: Priority,
) -> _Encoded:
    vectors = [each.vectors for each in regions.values()]
    embeddings = await model.embed_regions(vectors, deadline.left_for(_WORK), priority)
    has_tokens = _wants_tokens(model.manifest, priority)
    none = np.zeros((0, 0), dtype=np.float16)
    return {
        number: Encoding(embedding, ImageTokens(rows if has_tokens else none))
        for number, rows, embedding in zip(regions, vectors, embeddings.values, strict=True)
    }, embeddings.cost


def _wants_tokens(manifest: Manifest, priority: Priority) -> bool:
    """Returns whether to compute pictures' tokens: not at ingest if the model recomputes them."""
    is_stored = priority is Priority.INGEST
    return manifest.has_pairs and not (is_stored and manifest.tokens is TokenSource.RECOMPUTED)


def _of_windows(encodings: Sequence[Encoding], text_use: TextUse) -> Encoding:
    first, *further = encodings
    return replace(first, text_use=text_use, further_windows=tuple(further))


def _length(content: _Given) -> int:
    """Returns how much of a thread's piece of work it is: a picture is a piece of its own."""
    return len(content.text) if isinstance(content, TextContent) else _PIECE_LENGTH
