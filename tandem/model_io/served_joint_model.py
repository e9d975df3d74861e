"""Calls the joint model in Triton: token ids, pixels and image tokens in, arrays out.

Shapes: n rows of a call, H W pixels, T text tokens, R image tokens, D token width, d dimensions.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.contract.inference_cost import InferenceCost
from tandem.errors import ModelUnavailable
from tandem.model_io.buckets import Chunk, chunks_by_length, pad_texts, pair_chunk_size
from tandem.model_io.config_pbtxt import INSTANCE_COUNT, image_batch_size, pair_batch_size
from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest
from tandem.model_io.model_version import FIRST_VERSION
from tandem.model_io.pair_window import PairWindow
from tandem.model_io.precision import Precision
from tandem.model_io.priority import Priority
from tandem.model_io.triton_client import OutputSpec, TritonClient

TokenIds = NDArray[np.int32]
ImageTokenArray = NDArray[np.float16]

# Triton batches requests that arrive at the same moment, so one instance would compute both halves
# of a search's pairs while the other is idle.
_APART_SECONDS = 0.001
# Limits the pairs in Triton: the batch that an instance computes, and the next.
_BATCHES_PER_INSTANCE = 2
Values = TypeVar("Values", bound=NDArray[Any])


# eq=False: arrays compare element by element, so `==` on the whole would raise.
@dataclass(frozen=True, slots=True, eq=False)
class Inferred(Generic[Values]):
    """Holds the model's outputs, one row per row of the call, and their cost."""

    values: Values
    cost: InferenceCost


class ServedJointModel:
    """Calls the model's two parts; splits calls into batches, and keeps the order of rows."""

    def __init__(
        self,
        triton: TritonClient,
        manifest: Manifest,
        version: int = FIRST_VERSION,
        window: PairWindow | None = None,
    ) -> None:
        """Every inference uses this version of the joint encoder, or fails.

        `window` is shared with other versions of the same model; by default it is new.
        """
        self.manifest = manifest
        self.version = version
        self._triton = triton
        self._image_batch_size = image_batch_size(manifest)
        self._batch_size = pair_batch_size(manifest)
        self._window = window or PairWindow(
            _BATCHES_PER_INSTANCE * INSTANCE_COUNT * self._batch_size
        )
        self._embedding = OutputSpec("OUTPUT__0", np.float32, (manifest.embedding_dim,))
        self._match_logit = OutputSpec("OUTPUT__1", np.float32, (1,))
        self._image_tokens = OutputSpec(
            "OUTPUT__0", np.float16, (manifest.image_token_count, manifest.token_width)
        )

    def at(self, version: int) -> "ServedJointModel":
        """Returns the model at a version; raises ModelUnavailable for an impossible number."""
        if version < FIRST_VERSION:
            raise ModelUnavailable(model=JOINT_ENCODER, why=f"there is no version {version}")
        if version == self.version:
            return self
        return ServedJointModel(self._triton, self.manifest, version, self._window)

    def check_processes(self) -> None:
        """Raises ModelUnavailable if an instance was recently found dead."""
        self._triton.check_processes()

    def is_proven(self, model: str) -> bool:
        """Returns whether calls of the last second show that all instances of `model` answer."""
        return self._triton.is_proven(model)

    async def embed_texts(
        self,
        texts: Sequence[TokenIds],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> Inferred[NDArray[np.float32]]:
        """Returns float32 [n, d], of unit length."""

        async def run(chunk: Chunk) -> Inferred[NDArray[Any]]:
            ids, mask = self._padded(texts, chunk)
            no_image = np.zeros((len(ids), 1, self.manifest.token_width), dtype=np.float16)
            absent = np.zeros((len(ids), 1), dtype=np.int64)
            return await self._encode(
                (ids, mask, no_image, absent), self._embedding, timeout_seconds, priority
            )

        return await _in_chunks(self._text_chunks(texts, self._batch_size), run, self._embedding)

    async def image_tokens(
        self,
        pixels: NDArray[np.uint8],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> Inferred[ImageTokenArray]:
        """Returns float16 [n, R, D] of uint8 [n, H, W, 3].

        Image tokens are counted when the joint encoder reads them, not here.
        """

        async def run(chunk: Chunk) -> Inferred[NDArray[Any]]:
            answer = await self._triton.infer(
                IMAGE_BACKBONE,
                {"pixels": pixels[chunk.rows]},
                [self._image_tokens],
                timeout_seconds,
                priority,
            )
            cost = InferenceCost(
                triton_queue_seconds=answer.queue_seconds,
                triton_compute_seconds=answer.compute_seconds,
            )
            return Inferred(answer.arrays[0], cost)

        chunks = chunks_by_length([1] * len(pixels), (1,), self._image_batch_size)
        return await _in_chunks(chunks, run, self._image_tokens)

    async def embed_images(
        self,
        tokens: ImageTokenArray,
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> Inferred[NDArray[np.float32]]:
        """Returns float32 [n, d], of unit length, for image tokens [n, R, D].

        The text side is [CLS] alone, without [SEP], as in training.
        """

        async def run(chunk: Chunk) -> Inferred[NDArray[Any]]:
            images = tokens[chunk.rows]
            ids = np.full((len(images), 1), self.manifest.cls_id, dtype=np.int64)
            mask = np.ones_like(ids)
            present = np.ones(images.shape[:2], dtype=np.int64)
            return await self._encode(
                (ids, mask, images, present), self._embedding, timeout_seconds, priority
            )

        chunks = chunks_by_length([1] * len(tokens), (1,), self._batch_size)
        return await _in_chunks(chunks, run, self._embedding)

    async def match_logits(
        self,
        texts: Sequence[TokenIds],
        images: Sequence[ImageTokenArray],
        timeout_seconds: float,
        priority: Priority = Priority.RERANK,
    ) -> Inferred[NDArray[np.float32]]:
        """Returns float32 [n], the cross-encoder's logit for text i and image i, each [R, D]."""

        async def run(chunk: Chunk) -> Inferred[NDArray[Any]]:
            if priority is Priority.CANARY:
                return await send(chunk, timeout_seconds)
            # As in Triton's queue, for at most half of the time.
            return await self._window.run(
                len(chunk.rows),
                timeout_seconds / 2,
                lambda: send(chunk, deadline_time - time.monotonic()),
            )

        async def send(chunk: Chunk, left_seconds: float) -> Inferred[NDArray[Any]]:
            ids, mask = self._padded(texts, chunk)
            tokens = np.stack([images[row] for row in chunk.rows])
            present = np.ones(tokens.shape[:2], dtype=np.int64)
            inferred = await self._encode(
                (ids, mask, tokens, present), self._match_logit, left_seconds, priority
            )
            return replace(inferred, cost=replace(inferred.cost, pair_count=len(ids)))

        deadline_time = time.monotonic() + timeout_seconds

        # A GPU takes them in one batch; CPU cores share them.
        size = self._batch_size
        if self.manifest.precision != Precision.FP16:
            size = pair_chunk_size(len(texts), INSTANCE_COUNT, self._batch_size)
        scored = await _in_chunks(
            self._text_chunks(texts, size), run, self._match_logit, _APART_SECONDS
        )
        return Inferred(scored.values[:, 0], scored.cost)

    async def _encode(
        self,
        arrays: tuple[NDArray[np.int64], NDArray[np.int64], ImageTokenArray, NDArray[np.int64]],
        output: OutputSpec,
        timeout_seconds: float,
        priority: Priority,
    ) -> Inferred[NDArray[Any]]:
        ids, text_mask, tokens, image_mask = arrays
        inputs: dict[str, NDArray[Any]] = {
            "input_ids": ids,
            "text_mask": text_mask,
            "image_tokens": tokens,
            "image_mask": image_mask,
        }
        answer = await self._triton.infer(
            JOINT_ENCODER, inputs, [output], timeout_seconds, priority, self.version
        )
        cost = InferenceCost(
            token_count=int(text_mask.sum() + image_mask.sum()),
            padded_token_count=text_mask.size + image_mask.size,
            triton_queue_seconds=answer.queue_seconds,
            triton_compute_seconds=answer.compute_seconds,
        )
        return Inferred(answer.arrays[0], cost)

    def _text_chunks(self, texts: Sequence[TokenIds], chunk_size: int) -> list[Chunk]:
        lengths = [len(text) for text in texts]
        return chunks_by_length(lengths, self.manifest.text_length_buckets, chunk_size)

    def _padded(
        self, texts: Sequence[TokenIds], chunk: Chunk
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the ids and mask of the chunk's texts."""
        return pad_texts(
            (texts[row] for row in chunk.rows), chunk.padded_length, self.manifest.pad_id
        )


async def _in_chunks(
    chunks: Sequence[Chunk],
    run: Callable[[Chunk], Coroutine[Any, Any, Inferred[NDArray[Any]]]],
    output: OutputSpec,
    apart_seconds: float = 0.0,
) -> Inferred[NDArray[Any]]:
    """Runs all chunks concurrently and returns their rows in order; no rows without chunks.

    Each instance's first chunk is sent `apart_seconds` after the previous one.
    """

    async def run_in_turn(number: int, chunk: Chunk) -> Inferred[NDArray[Any]]:
        if wait_seconds := apart_seconds * min(number, INSTANCE_COUNT - 1):
            await asyncio.sleep(wait_seconds)
        return await run(chunk)

    tasks = [asyncio.ensure_future(run_in_turn(*each)) for each in enumerate(chunks)]
    try:
        parts = await asyncio.gather(*tasks)
    finally:
        # Where one failed, the others are in vain.
        for task in tasks:
            task.cancel()
    row_count = sum(len(chunk.rows) for chunk in chunks)
    values: NDArray[Any] = np.empty((row_count, *output.dims), dtype=output.dtype)
    for chunk, part in zip(chunks, parts, strict=True):
        values[chunk.rows] = part.values
    return Inferred(values, sum((part.cost for part in parts), InferenceCost()))
