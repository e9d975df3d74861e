"""The joint model as Triton serves it: token ids, pixels and image tokens in, arrays out.

Shapes: n rows of a call, H W pixels, T text tokens, R image tokens, D token width, d dimensions.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.model_io.buckets import bucket_of, pad_texts
from tandem.model_io.config_pbtxt import IMAGE_BATCH_SIZE, PAIR_BATCH_SIZE
from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest
from tandem.model_io.triton_client import OutputSpec, TritonClient

TokenIds = NDArray[np.int32]
ImageTokenArray = NDArray[np.float16]


class ServedJointModel:
    """Calls the model's two parts; splits what is over a batch, keeps the order of what it gets."""

    def __init__(self, triton: TritonClient, manifest: Manifest) -> None:
        self.manifest = manifest
        self._triton = triton
        self._embedding = OutputSpec("OUTPUT__0", np.float32, (manifest.embedding_dim,))
        self._match_logit = OutputSpec("OUTPUT__1", np.float32, (1,))
        self._image_tokens = OutputSpec(
            "OUTPUT__0", np.float16, (manifest.image_token_count, manifest.token_width)
        )

    async def embed_texts(
        self, texts: Sequence[TokenIds], timeout_seconds: float
    ) -> NDArray[np.float32]:
        """Returns float32 [n, d], of unit length."""

        async def run(rows: slice) -> NDArray[Any]:
            ids, mask = self._padded(texts[rows])
            no_image = np.zeros((len(ids), 1, self.manifest.token_width), dtype=np.float16)
            absent = np.zeros((len(ids), 1), dtype=np.int64)
            return await self._encode(ids, mask, no_image, absent, self._embedding, timeout_seconds)

        return await _in_chunks(len(texts), PAIR_BATCH_SIZE, run, self._embedding)

    async def image_tokens(
        self, pixels: NDArray[np.uint8], timeout_seconds: float
    ) -> ImageTokenArray:
        """Returns float16 [n, R, D] of uint8 [n, H, W, 3]."""

        async def run(rows: slice) -> NDArray[Any]:
            [tokens] = await self._triton.infer(
                IMAGE_BACKBONE, {"pixels": pixels[rows]}, [self._image_tokens], timeout_seconds
            )
            return tokens

        return await _in_chunks(len(pixels), IMAGE_BATCH_SIZE, run, self._image_tokens)

    async def embed_images(
        self, tokens: ImageTokenArray, timeout_seconds: float
    ) -> NDArray[np.float32]:
        """Returns float32 [n, d], of unit length, for image tokens [n, R, D].

        The text side is [CLS] alone, without [SEP], as in training.
        """

        async def run(rows: slice) -> NDArray[Any]:
            chunk = tokens[rows]
            ids = np.full((len(chunk), 1), self.manifest.cls_id, dtype=np.int64)
            mask = np.ones_like(ids)
            present = np.ones(chunk.shape[:2], dtype=np.int64)
            return await self._encode(ids, mask, chunk, present, self._embedding, timeout_seconds)

        return await _in_chunks(len(tokens), PAIR_BATCH_SIZE, run, self._embedding)

    async def match_logits(
        self,
        texts: Sequence[TokenIds],
        images: Sequence[ImageTokenArray],
        timeout_seconds: float,
    ) -> NDArray[np.float32]:
        """Returns float32 [n], the cross-encoder's logit for text i beside image i, each [R, D]."""

        async def run(rows: slice) -> NDArray[Any]:
            ids, mask = self._padded(texts[rows])
            tokens = np.stack(images[rows])
            present = np.ones(tokens.shape[:2], dtype=np.int64)
            return await self._encode(
                ids, mask, tokens, present, self._match_logit, timeout_seconds
            )

        return (await _in_chunks(len(texts), PAIR_BATCH_SIZE, run, self._match_logit))[:, 0]

    async def _encode(
        self,
        ids: NDArray[np.int64],
        text_mask: NDArray[np.int64],
        tokens: ImageTokenArray,
        image_mask: NDArray[np.int64],
        output: OutputSpec,
        timeout_seconds: float,
    ) -> NDArray[Any]:
        inputs: dict[str, NDArray[Any]] = {
            "input_ids": ids,
            "text_mask": text_mask,
            "image_tokens": tokens,
            "image_mask": image_mask,
        }
        [array] = await self._triton.infer(JOINT_ENCODER, inputs, [output], timeout_seconds)
        return array

    def _padded(self, texts: Sequence[TokenIds]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns ids and mask of all texts in the bucket of the longest.

        In one bucket, though the short ones would fit a smaller: one request that batches with
        those of other users, not several small ones that do not batch with each other.
        """
        longest = max(len(text) for text in texts)
        length = bucket_of(longest, self.manifest.text_length_buckets)
        return pad_texts(texts, length, self.manifest.pad_id)


async def _in_chunks(
    count: int,
    chunk_size: int,
    run: Callable[[slice], Coroutine[Any, Any, NDArray[Any]]],
    output: OutputSpec,
) -> NDArray[Any]:
    """Runs all chunks at once and joins what they give; of nothing, an array of no rows."""
    starts = range(0, count, chunk_size)
    parts = await asyncio.gather(*(run(slice(start, start + chunk_size)) for start in starts))
    return np.concatenate([np.empty((0, *output.dims), dtype=output.dtype), *parts])
