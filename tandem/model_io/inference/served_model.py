"""Calls a model's three functions in Triton: token ids, pixels and image tokens in, arrays out.

Shapes: n rows of a call, H W pixels, T text tokens, R image tokens, D token width, d dimensions.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.contract.inference_cost import InferenceCost
from tandem.errors import ModelUnavailable
from tandem.model_io.inference.buckets import Chunk, chunks_by_length, pad_texts, pair_chunk_size
from tandem.model_io.inference.joined_scoring import JoinedScoring
from tandem.model_io.inference.model_runner import (
    ImageTokenArray,
    Inferred,
    ModelRunner,
    OutputSpec,
    TokenIds,
)
from tandem.model_io.inference.pair_window import PairWindow
from tandem.model_io.repository.config_pbtxt import (
    INSTANCE_COUNT,
    max_batch_size,
    pair_batch_size,
    text_rules_of,
)
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.model_version import FIRST_VERSION
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.priority import Priority
from tandem.model_io.repository.served_functions import Role, TritonModel

RoleArrays = Mapping[Role, NDArray[Any]]

# Triton batches requests that arrive at the same moment, so one instance would compute both halves
# of a search's pairs while the other is idle.
_APART_SECONDS = 0.001
# Limits the pairs in Triton: the batch that an instance computes, and the next.
_BATCHES_PER_INSTANCE = 2


@dataclass(frozen=True, slots=True)
class Instances:
    """Says how many inferences of a model run at once, and how a call's chunks are sent to them."""

    count: int = INSTANCE_COUNT
    apart_seconds: float = _APART_SECONDS
    """Time between the first chunk of one and that of the next."""


_TRITON_INSTANCES = Instances()


# eq=False: arrays compare element by element, so `==` on the whole would raise.
@dataclass(frozen=True, slots=True, eq=False)
class EncodedImages:
    """Holds float32 `embeddings` [n, d], and float16 `tokens` [n, R, D] if the model gave both."""

    embeddings: NDArray[np.float32]
    tokens: ImageTokenArray | None


class ServedModel:
    """Calls the Triton models of each function; splits calls into batches, and keeps row order."""

    def __init__(
        self,
        runner: ModelRunner,
        manifest: Manifest,
        version: int = FIRST_VERSION,
        window: PairWindow | None = None,
        instances: Instances = _TRITON_INSTANCES,
    ) -> None:
        """Every inference uses this version of a joint encoder, or fails.

        `window` is shared with other versions of the same model; by default it is new. `instances`
        are the runner's. Callers that share this object may score pairs together by `joined`.
        """
        self.manifest = manifest
        self.version = version
        self.joined = JoinedScoring()
        self._runner = runner
        self._functions = manifest.functions
        self._instances = instances
        self._window = window or PairWindow(
            _BATCHES_PER_INSTANCE * instances.count * pair_batch_size(manifest)
        )
        self._outputs: Mapping[Role, tuple[type, tuple[int, ...]]] = {
            Role.EMBEDDING: (np.float32, (manifest.embedding_dim,)),
            Role.MATCH_LOGIT: (np.float32, (1,)),
            Role.IMAGE_TOKENS: (np.float16, (manifest.image_token_count, manifest.token_width)),
        }

    def at(self, version: int) -> "ServedModel":
        """Returns the model at a version; raises ModelUnavailable for an impossible number.

        Only a joint model has versions after the first.
        """
        if version < FIRST_VERSION:
            raise ModelUnavailable(model=self._text_model, why=f"there is no version {version}")
        if version == self.version:
            return self
        if not self.manifest.is_joint:
            raise ModelUnavailable(
                model=self._text_model,
                why=f"there is no version {version}: only a joint model has versions",
            )
        return ServedModel(self._runner, self.manifest, version, self._window, self._instances)

    def check_processes(self) -> None:
        """Raises ModelUnavailable if an instance was recently found dead."""
        self._runner.check_processes()

    async def check_working(self, model: str) -> None:
        """Raises unless a late answer of `model` is load; `TritonClient` says what."""
        await self._runner.check_working(model)

    def is_proven(self, model: str) -> bool:
        """Returns whether calls of the last second show that all instances of `model` answer."""
        return self._runner.is_proven(model)

    async def embed_texts(
        self,
        texts: Sequence[TokenIds],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> Inferred[NDArray[np.float32]]:
        """Returns float32 [n, d], of unit length, of `text` ids."""
        name = self._text_model

        async def run(chunk: Chunk) -> Inferred[RoleArrays]:
            given = self._padded(name, texts, chunk)
            return await self.call(name, given, [Role.EMBEDDING], timeout_seconds, priority)

        size = max_batch_size(self.manifest, name)
        embedded = await self._in_chunks(
            self._text_chunks(name, texts, size), run, [Role.EMBEDDING]
        )
        return Inferred(embedded.values[Role.EMBEDDING], embedded.cost)

    async def encode_images(
        self,
        pixels: NDArray[np.uint8],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> Inferred[EncodedImages]:
        """Returns embeddings of uint8 [n, H, W, 3], fitted by `image`, and tokens if it gives both.

        In a joint model the text side is [CLS] alone, without [SEP], as in training.
        """
        deadline_time = time.monotonic() + timeout_seconds
        given: dict[Role, NDArray[Any]] = {Role.PIXELS: pixels}
        cost = InferenceCost()
        for name in self._functions.embed_image:
            left_seconds = deadline_time - time.monotonic()
            made = await self._of_images(name, given, None, left_seconds, priority)
            given |= made.values
            cost += made.cost
        tokens = given.get(Role.IMAGE_TOKENS) if self.manifest.has_one_picture else None
        return Inferred(EncodedImages(given[Role.EMBEDDING], tokens), cost)

    async def embed_regions(
        self,
        regions: Sequence[ImageTokenArray],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> Inferred[NDArray[np.float32]]:
        """Returns float32 [n, d] of vectors [R, D] each, by `regions` (region_vectors.py).

        As for pictures, the text side of a joint model is [CLS] alone.
        """
        [name] = self._functions.embed_image
        given = self._padded_images(list(regions))
        made = await self._of_images(name, given, [Role.EMBEDDING], timeout_seconds, priority)
        return Inferred(made.values[Role.EMBEDDING], made.cost)

    async def image_tokens(
        self,
        pixels: NDArray[np.uint8],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
    ) -> Inferred[ImageTokenArray]:
        """Returns float16 [n, R, D] of uint8 [n, H, W, 3], fitted by `pair_image`.

        Image tokens are counted when they are read, not here. Raises ModelUnavailable if the model
        has no `score_pair`.
        """
        name = self._paired(self._functions.image_tokens)
        roles = [Role.IMAGE_TOKENS]
        given = {Role.PIXELS: pixels}
        made = await self._of_images(name, given, roles, timeout_seconds, priority)
        return Inferred(made.values[Role.IMAGE_TOKENS], made.cost)

    async def match_logits(
        self,
        texts: Sequence[TokenIds],
        images: Sequence[ImageTokenArray],
        timeout_seconds: float,
        priority: Priority = Priority.RERANK,
    ) -> Inferred[NDArray[np.float32]]:
        """Returns float32 [n], the cross-encoder's logit for text i and image i, each [R, D].

        Texts are `pair_text` ids. Raises ModelUnavailable if the model has no `score_pair`.
        """
        name = self._paired(self._functions.score_pair)

        async def run(chunk: Chunk) -> Inferred[RoleArrays]:
            if priority is Priority.CANARY:
                return await send(chunk, timeout_seconds)
            # As in Triton's queue, for at most half of the time.
            return await self._window.run(
                len(chunk.rows),
                timeout_seconds / 2,
                lambda: send(chunk, deadline_time - time.monotonic()),
            )

        async def send(chunk: Chunk, left_seconds: float) -> Inferred[RoleArrays]:
            given = self._padded(name, texts, chunk)
            given |= self._padded_images([images[row] for row in chunk.rows])
            made = await self.call(name, given, [Role.MATCH_LOGIT], left_seconds, priority)
            return replace(made, cost=replace(made.cost, pair_count=len(chunk.rows)))

        deadline_time = time.monotonic() + timeout_seconds

        # A GPU takes them in one batch; CPU cores share them, unless all have work already.
        size = max_batch_size(self.manifest, name)
        if self.manifest.precision != Precision.FP16 and not self._window.is_busy:
            size = pair_chunk_size(len(texts), self._instances.count, size)
        scored = await self._in_chunks(
            self._text_chunks(name, texts, size),
            run,
            [Role.MATCH_LOGIT],
            self._instances.apart_seconds,
        )
        return Inferred(scored.values[Role.MATCH_LOGIT][:, 0], scored.cost)

    async def call(
        self,
        name: str,
        given: RoleArrays,
        outputs: Sequence[Role],
        timeout_seconds: float,
        priority: Priority,
    ) -> Inferred[RoleArrays]:
        """Returns the outputs of one Triton model for one batch.

        The absent side of a joint model is filled in.
        """
        model = self.manifest.models[name]
        whole = self._filled(model, given)
        answer = await self._runner.infer(
            name,
            {f"INPUT__{number}": whole[role] for number, role in enumerate(model.inputs)},
            [
                OutputSpec(f"OUTPUT__{model.outputs.index(role)}", *self._outputs[role])
                for role in outputs
            ],
            timeout_seconds,
            priority,
            self.version if model.is_joint else None,
        )
        masks = [whole[role] for role in model.inputs if role in (Role.TEXT_MASK, Role.IMAGE_MASK)]
        cost = InferenceCost(
            token_count=sum(int(mask.sum()) for mask in masks),
            padded_token_count=sum(mask.size for mask in masks),
            triton_queue_seconds=answer.queue_seconds,
            triton_compute_seconds=answer.compute_seconds,
        )
        return Inferred(dict(zip(outputs, answer.arrays, strict=True)), cost)

    @property
    def _text_model(self) -> str:
        return self._functions.embed_text

    def _paired(self, name: str | None) -> str:
        if name is None:
            raise ModelUnavailable(
                model="score_pair", why=f"{self.manifest.family} is a bi-encoder alone"
            )
        return name

    async def _of_images(
        self,
        name: str,
        given: RoleArrays,
        outputs: Sequence[Role] | None,
        timeout_seconds: float,
        priority: Priority,
    ) -> Inferred[RoleArrays]:
        """Returns a Triton model's outputs for pictures, or for their tokens; by default all."""
        model = self.manifest.models[name]
        roles = [each for each in model.outputs if each is not Role.MATCH_LOGIT]
        chosen = roles if outputs is None else outputs
        taken = {role: rows for role, rows in given.items() if role in model.inputs}
        row_count = len(next(iter(taken.values())))

        async def run(chunk: Chunk) -> Inferred[RoleArrays]:
            part = {role: rows[chunk.rows] for role, rows in taken.items()}
            return await self.call(name, part, chosen, timeout_seconds, priority)

        chunks = chunks_by_length([1] * row_count, (1,), max_batch_size(self.manifest, name))
        return await self._in_chunks(chunks, run, chosen)

    def _filled(self, model: TritonModel, given: RoleArrays) -> RoleArrays:
        """Returns the inputs with an image mask, and with the absent side of a joint model."""
        whole = dict(given)
        row_count = len(next(iter(given.values())))
        if model.is_joint and Role.TOKEN_IDS not in given:
            cls_id = self.manifest.cls_id or 0
            whole[Role.TOKEN_IDS] = np.full((row_count, 1), cls_id, dtype=np.int64)
            whole[Role.TEXT_MASK] = np.ones((row_count, 1), dtype=np.int64)
        if Role.IMAGE_TOKENS in given:
            shape = given[Role.IMAGE_TOKENS].shape[:2]
            whole.setdefault(Role.IMAGE_MASK, np.ones(shape, dtype=np.int64))
        elif model.is_joint:
            shape = (row_count, 1, self.manifest.token_width)
            whole[Role.IMAGE_TOKENS] = np.zeros(shape, dtype=np.float16)
            whole[Role.IMAGE_MASK] = np.zeros((row_count, 1), dtype=np.int64)
        return whole

    def _padded_images(self, images: Sequence[ImageTokenArray]) -> dict[Role, NDArray[Any]]:
        """Returns tokens with their mask; a detector's regions may be fewer than the most.

        They are padded to one length, so that requests of different users batch.
        """
        if self.manifest.regions is None:
            return {Role.IMAGE_TOKENS: np.stack(images)}
        count, width = self.manifest.image_token_count, self.manifest.token_width
        tokens = np.zeros((len(images), count, width), dtype=np.float16)
        mask = np.zeros((len(images), count), dtype=np.int64)
        for row, image in enumerate(images):
            tokens[row, : len(image)] = image
            mask[row, : len(image)] = 1
        return {Role.IMAGE_TOKENS: tokens, Role.IMAGE_MASK: mask}

    def _text_chunks(self, name: str, texts: Sequence[TokenIds], chunk_size: int) -> list[Chunk]:
        lengths = [len(text) for text in texts]
        return chunks_by_length(lengths, text_rules_of(self.manifest, name).lengths, chunk_size)

    def _padded(
        self, name: str, texts: Sequence[TokenIds], chunk: Chunk
    ) -> dict[Role, NDArray[Any]]:
        """Returns the ids and mask of the chunk's texts."""
        rules = text_rules_of(self.manifest, name)
        ids, mask = pad_texts((texts[row] for row in chunk.rows), chunk.padded_length, rules.pad_id)
        if rules.reads_padding:
            mask[:] = 1
        return {Role.TOKEN_IDS: ids, Role.TEXT_MASK: mask}

    async def _in_chunks(
        self,
        chunks: Sequence[Chunk],
        run: Callable[[Chunk], Coroutine[Any, Any, Inferred[RoleArrays]]],
        outputs: Sequence[Role],
        apart_seconds: float = 0.0,
    ) -> Inferred[RoleArrays]:
        """Runs all chunks concurrently and returns their rows in order; no rows without chunks.

        Each instance's first chunk is sent `apart_seconds` after the previous one.
        """

        async def run_in_turn(number: int, chunk: Chunk) -> Inferred[RoleArrays]:
            if wait_seconds := apart_seconds * min(number, self._instances.count - 1):
                await asyncio.sleep(wait_seconds)
            return await run(chunk)

        if len(chunks) == 1:
            parts = [await run(chunks[0])]
        else:
            parts = await _all_or_none(run_in_turn(*each) for each in enumerate(chunks))
        row_count = sum(len(chunk.rows) for chunk in chunks)
        values: dict[Role, NDArray[Any]] = {}
        for role in outputs:
            dtype, dims = self._outputs[role]
            values[role] = np.empty((row_count, *dims), dtype=dtype)
            for chunk, part in zip(chunks, parts, strict=True):
                values[role][chunk.rows] = part.values[role]
        return Inferred(values, sum((part.cost for part in parts), InferenceCost()))


async def _all_or_none(
    runs: Iterable[Coroutine[Any, Any, Inferred[RoleArrays]]],
) -> list[Inferred[RoleArrays]]:
    """Runs all concurrently and returns their results; where one fails, cancels the others."""
    tasks = [asyncio.ensure_future(each) for each in runs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
