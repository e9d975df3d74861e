"""Evaluates a checkpoint in this process, with the same orders as the served path.

A gallery is encoded once. Pools are nested, so one pass over the largest k gives every smaller one;
the cross-encoder on all pairs is a pool of everything.

Shapes: Q queries, N pictures, U distinct contents, M items of the target modality, K pool, P pairs,
T text tokens, R image tokens, D width.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tandem.contract.content import Modality
from tandem.lab.evaluation.gallery import Gallery
from tandem.lab.evaluation.ranking import Order, rerank_order, retrieve_order, tied_count
from tandem.lab.zoo.checkpoint import ZooCheckpoint
from tandem.model_io.inference.buckets import pad_texts
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.checkpoint import Checkpoint
from tandem.modeling.image_sources.image_tokens import PixelTokens, RecordTokens
from tandem.modeling.towers.two_towers import PairSide, TwoTowers

Floats = NDArray[np.floating[Any]]
ScoredCheckpoint = Checkpoint | ZooCheckpoint
Fusion = Callable[[Floats, Floats, float], Floats]
OnProgress = Callable[[int], None]
Row = TypeVar("Row")
_Inputs = Callable[[Sequence[int]], tuple[Tensor, Tensor]]
"""Gives what a side reads of items by number: ids or image tokens, and their mask."""
_Read = tuple[Tensor, ...]
"""One item's embedding, and with a matcher its unit vectors of parts and whole."""

_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True)
class OfflineSeconds:
    """Holds the durations of scoring, divided as in Tables 3 and 4 of Geigle et al. 2022."""

    encode_images: float
    """Reading and encoding all pictures of the gallery."""
    encode_texts: float
    match_tokens: float
    """Image tokens for the cross-encoder, if it does not share the bi-encoder's."""
    retrieve: float
    """Similarities and orders of all queries."""
    match: float
    """The cross-encoder on all pairs."""
    pair_count: int

    @property
    def per_pair(self) -> float:
        return self.match / self.pair_count


@dataclass(frozen=True, slots=True)
class ScoredPools:
    """Holds one direction's scores, one row per query."""

    retrieved: Order
    """int64 [Q, M]."""
    similarity: Floats
    """[Q, M], item m in column m."""
    logits: Floats
    """[Q, K], the match logit of the item at the same position of `retrieved`."""
    tied_count: int
    """Queries for which an answer is exactly as similar as another item."""
    seconds: OfflineSeconds

    def reranked(self, k: int) -> Order:
        return rerank_order(self.retrieved, self.logits[:, :k])

    def fused(self, k: int, fuse: Fusion, weight: float) -> Order:
        """Returns the full orders with the first `k` reordered by a fused score."""
        similarity_QK = np.take_along_axis(self.similarity, self.retrieved[:, :k], axis=1)
        probability_QK = 1 / (1 + np.exp(-self.logits[:, :k].astype(np.float64)))
        return rerank_order(self.retrieved, fuse(similarity_QK, probability_QK, weight))


@dataclass(frozen=True, slots=True)
class _Distinct:
    """Finds equal contents."""

    numbers: list[int]
    """Number of the first occurrence of each distinct content, in order."""
    places: list[int]
    """For each content, the index in `numbers` of the first that is equal to it."""

    @classmethod
    def of(cls, contents: Iterable[bytes]) -> Self:
        """Finds equal contents: for a, b, a, the numbers are 0, 1 and the places 0, 1, 0."""
        numbers: list[int] = []
        places: list[int] = []
        place_of: dict[bytes, int] = {}
        for number, content in enumerate(contents):
            place = place_of.setdefault(sha256(content).digest(), len(numbers))
            if place == len(numbers):
                numbers.append(number)
            places.append(place)
        return cls(numbers, places)

    @property
    def repetition(self) -> float:
        return len(self.places) / len(self.numbers)


class OfflineGallery:
    """Holds a gallery as one checkpoint encodes it."""

    def __init__(
        self,
        checkpoint: ScoredCheckpoint,
        gallery: Gallery,
        images: RecordTokens | None = None,
        *,
        embeds: bool = True,
    ) -> None:
        """Encodes the gallery, with image tokens from the records' pixels or from `images`.

        Without `embeds` it only scores pairs, in pools that another one finds. Raises the
        TandemError of a picture or caption that cannot be read, and ValueError for image tokens of
        another width.
        """
        self._model = checkpoint.model
        self._gallery = gallery
        special = special_tokens(checkpoint.tokenizer)
        self._pad_id = special.pad_id
        preprocessor = TextPreprocessor(
            checkpoint.tokenizer,
            checkpoint.model.config.max_text_tokens,
            policy=gallery.truncation_policy,
        )
        self._ids = [preprocessor.token_ids(caption.text) for _, caption in gallery.pairs]
        config = checkpoint.model.config
        encoder = getattr(self._model, "joint_encoder", None)
        self._pairs: _TowerPairs | None = None
        if isinstance(encoder, TwoTowers):  # which need not read both sides of a pair at once
            self._pairs = _TowerPairs(
                encoder.pair,
                lambda rows: self._padded([self._ids[number] for number in rows]),
                lambda rows: (self.tokens_NRD[list(rows)], self._image_mask_NR[list(rows)]),
            )
        source = images or PixelTokens(self._model.image_backbone, config.image_rules)
        token_start_time = time.monotonic()
        with torch.inference_mode():
            tokens, masks = zip(
                *(source.of(batch) for batch in _batches(gallery.records)), strict=True
            )
            self.tokens_NRD = torch.cat(tokens)
            """Image tokens of every picture, what the cross-encoder reads."""
            self._image_mask_NR = torch.cat(masks)
            if self.tokens_NRD.shape[2] != config.token_width:
                raise ValueError(
                    f"image tokens are {self.tokens_NRD.shape[2]} wide and the checkpoint reads "
                    f"{config.image_source}, {config.token_width} wide"
                )
            # Equal contents are embedded once. In another batch or padded differently, the last bit
            # may differ, which would order equal queries' items and distractors by batch.
            read = zip(self.tokens_NRD.numpy(), self._image_mask_NR.numpy(), strict=True)
            self._images = _Distinct.of(tokens.tobytes() + mask.tobytes() for tokens, mask in read)
            self._texts = _Distinct.of(ids.tobytes() for ids in self._ids)
            image_start_time = time.monotonic()
            images_UD = _joined(
                self._model.embed_images(
                    self.tokens_NRD[numbers], special.cls_id, self._image_mask_NR[numbers]
                )
                for numbers in _batches(self._images.numbers if embeds else ())
            )
            text_start_time = time.monotonic()
            texts_UD = _joined(
                self._model.embed_texts(*self._padded([self._ids[number] for number in numbers]))
                for numbers in _batches(self._texts.numbers if embeds else ())
            )
            text_end_time = time.monotonic()
        self._embeddings = {Modality.IMAGE: images_UD, Modality.TEXT: texts_UD}
        # Both directions' pools have most pairs in common, and all of them if a pool is everything.
        self._logit_of: dict[int, float] = {}
        self._match_seconds = 0.0
        # Extrapolated to all contents, because every real query is encoded.
        self.token_seconds = image_start_time - token_start_time
        self.image_seconds = (text_start_time - image_start_time) * self._images.repetition
        self.text_seconds = (text_end_time - text_start_time) * self._texts.repetition

    def embeddings(self, modality: Modality) -> Floats:
        """Returns [M, D]: the embedding of each picture, or of each caption."""
        items = self._images if modality is Modality.IMAGE else self._texts
        return self._embeddings[modality].numpy()[items.places]

    def similarity(self, target: Modality) -> Floats:
        """Returns [Q, M]: each query's similarity to each item of the target modality."""
        query_count = len(self._gallery.languages(target))
        is_by_text = target is Modality.IMAGE
        queries, items = (self._texts, self._images) if is_by_text else (self._images, self._texts)
        asking = Modality.TEXT if is_by_text else Modality.IMAGE
        queries_QD = self._embeddings[asking][queries.places[:query_count]]
        return (queries_QD @ self._embeddings[target].T).numpy()[:, items.places]

    def score(
        self,
        target: Modality,
        k: int,
        on_progress: OnProgress = lambda _: None,
        retriever: "OfflineGallery | None" = None,
        query_numbers: Sequence[int] | None = None,
    ) -> ScoredPools:
        """Returns the pools of the best `k` items for each query, at most everything; 0 has none.

        `query_numbers` selects queries, one row each in that order. `on_progress` is called with
        the number of queries scored. `retriever` is the same gallery encoded by another checkpoint,
        whose bi-encoder then makes the pools (Sep+Coop).
        """
        retriever = retriever or self
        start_time = time.monotonic()
        similarity_QM = retriever.similarity(target)
        answers = self._gallery.answers(target)
        if query_numbers is None:
            query_numbers = range(len(similarity_QM))
        else:
            similarity_QM = similarity_QM[list(query_numbers)]
            answers = [answers[number] for number in query_numbers]
        retrieved_QM = retrieve_order(similarity_QM, self._gallery.tie_order(target))
        match_start_time = time.monotonic()
        logits_QK = self._pool_logits(target, query_numbers, retrieved_QM[:, :k], on_progress)
        self._match_seconds += time.monotonic() - match_start_time
        shares_tokens = torch.equal(self.tokens_NRD, retriever.tokens_NRD)
        seconds = OfflineSeconds(
            retriever.token_seconds + retriever.image_seconds,
            retriever.text_seconds,
            0.0 if shares_tokens else self.token_seconds,
            match_start_time - start_time,
            # Extrapolated to all pairs from those that were scored.
            self._match_seconds * logits_QK.size / max(1, len(self._logit_of)),
            logits_QK.size,
        )
        tied = tied_count(similarity_QM, answers)
        return ScoredPools(retrieved_QM, similarity_QM, logits_QK, tied, seconds)

    def _pool_logits(
        self,
        target: Modality,
        query_numbers: Sequence[int],
        pools_QK: Order,
        on_progress: OnProgress,
    ) -> Floats:
        """Returns [Q, K] match logits; a pair that was scored before is not scored again."""
        if not pools_QK.shape[1]:
            on_progress(len(query_numbers))
            return np.empty(pools_QK.shape)
        finds_images = target is Modality.IMAGE
        items, queries = self._images, self._texts
        if not finds_images:
            items, queries = queries, items
        places_QK = np.asarray(items.places)[pools_QK]
        rows = []
        for done, (query, places_K) in enumerate(
            zip(query_numbers, places_QK, strict=True), start=1
        ):
            places_U, which_K = np.unique(places_K, return_inverse=True)
            itself = np.full(len(places_U), queries.places[query])
            logits_U = self._pair_logits(
                *((itself, places_U) if finds_images else (places_U, itself))
            )
            rows.append(logits_U[which_K])
            on_progress(done)
        return np.stack(rows)

    def _pair_logits(self, texts_P: NDArray[np.int64], images_P: NDArray[np.int64]) -> Floats:
        """Returns [P] match logits of distinct contents; scores the pairs that are new."""
        keys = (texts_P * len(self._images.numbers) + images_P).tolist()
        new = [number for number, key in enumerate(keys) if key not in self._logit_of]
        if new:
            logits = self._match_logits(
                [self._texts.numbers[text] for text in texts_P[new]],
                [self._images.numbers[image] for image in images_P[new]],
            )
            self._logit_of |= zip((keys[number] for number in new), logits.tolist(), strict=True)
        return np.array([self._logit_of[key] for key in keys], np.float32)

    @torch.inference_mode()
    def _match_logits(self, captions: Sequence[int], images: Sequence[int]) -> Floats:
        if self._pairs is not None:
            return self._pairs.logits(captions, images).numpy()
        logits = []
        for pairs in _batches(zip(captions, images, strict=True)):
            caption_numbers, image_numbers = zip(*pairs, strict=True)
            ids, mask = self._padded([self._ids[number] for number in caption_numbers])
            rows = list(image_numbers)
            tokens_PRD, mask_PR = self.tokens_NRD[rows], self._image_mask_NR[rows]
            logits.append(self._model.match_logits(ids, mask, tokens_PRD, mask_PR))
        return torch.cat(logits).numpy()

    def _padded(self, ids: Sequence[NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
        padded, mask = pad_texts(ids, max(map(len, ids)), self._pad_id)
        return torch.from_numpy(padded), torch.from_numpy(mask)


class _TowerPairs:
    """Scores pairs by a model of two towers, whose sides meet only in the matcher.

    Each caption and each picture is read once, when it first occurs in a pool, where the joint
    encoder reads it again with every partner. A pair then only costs the matcher.
    """

    def __init__(self, pair: PairSide, texts: _Inputs, images: _Inputs) -> None:
        self._pair = pair
        self._texts = _Side(pair.read_text, texts)
        self._images = _Side(pair.read_image, images)

    def logits(self, captions: Sequence[int], images: Sequence[int]) -> Tensor:
        """Returns the match logit of each caption with the picture at its place, float32 [P]."""
        return self._pair.scored(self._texts.of(captions), self._images.of(images))[:, 0]


class _Side:
    def __init__(
        self,
        read: Callable[[Tensor, Tensor], tuple[Tensor, tuple[Tensor, ...] | None]],
        inputs: _Inputs,
    ) -> None:
        self._read, self._inputs = read, inputs
        self._found: dict[int, _Read] = {}

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
        missing = sorted({*numbers} - self._found.keys())
        for start in range(0, len(missing), _BATCH_SIZE):
            some = missing[start : start + _BATCH_SIZE]
            embeddings_BE, parts = self._read(*self._inputs(some))
            for place, number in enumerate(some):
                found: _Read = (embeddings_BE[place],)
                if parts is not None:
                    parts_LM, whole_M, counts_L = (each[place] for each in parts)
                    found = (*found, parts_LM[counts_L], whole_M)
                self._found[number] = found
        rows = [self._found[number] for number in numbers]
        embeddings_PE = torch.stack([row[0] for row in rows])
        if len(rows[0]) == 1:
            return embeddings_PE, None
        counts_PL = pad_sequence(
            [torch.ones(len(row[1]), dtype=torch.bool) for row in rows], batch_first=True
        )
        parts_PLM = pad_sequence([row[1] for row in rows], batch_first=True)
        return embeddings_PE, (parts_PLM, torch.stack([row[2] for row in rows]), counts_PL)


def _joined(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([*parts] or [torch.empty(0)])


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH_SIZE)):
        yield batch
