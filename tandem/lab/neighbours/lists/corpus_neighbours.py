"""Holds the neighbours in one corpus by one model: embeddings, four lists, and CE pools.

Items are in the order of their ids, which begin with a digest: equal similarities keep it, as in a
served index, so that no tie favours an answer. Shapes: I images, T texts, D width, K list, P pool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandem.lab.neighbours.lists.neighbour_lists import (
    Indices,
    Scores,
    SimilarityLists,
    nearest_lists,
)
from tandem.stages.finite import are_finite

BE_BASE: Final = "BE"
OWN_POOLS: Final = "own_pools"
"""The form of LeaPRR's similarities over a cross-encoder, as SimilarityLists gives them."""
LISTS: Final = ("texts_of_image", "images_of_text", "images_of_image", "texts_of_text")


def base_name(pool_size: int) -> str:
    """Returns "BE + CE 20" for pools of 20 that a cross-encoder scored, and "BE" for 0."""
    return f"{BE_BASE} + CE {pool_size}" if pool_size else BE_BASE


@dataclass(frozen=True, slots=True)
class NeighbourSource:
    """Says what the neighbours were computed from."""

    model_fingerprint: str
    """Of the model that embedded the corpus."""
    corpus: str
    split: str
    seed: int
    corpus_sha256: str
    """Digest of all ids, captions and pictures."""


@dataclass(frozen=True, slots=True)
class CorpusNeighbours:
    """Holds one corpus's embeddings, the nearest of each item, and match logits of pools."""

    source: NeighbourSource
    image_ids: Sequence[str]
    text_ids: Sequence[str]
    images: NDArray[np.float32]
    """[I, D], of unit length."""
    texts: NDArray[np.float32]
    """[T, D], of unit length."""
    image_of_text: Indices
    """int64 [T]."""
    lists: Mapping[str, Indices]
    """int64 [I or T, K] by the names in LISTS, the nearest first."""
    image_pool_logits: NDArray[np.float32]
    """[I, P], of each image with the first texts of its list; P is 0 without a cross-encoder."""
    text_pool_logits: NDArray[np.float32]
    """[T, P], of each text with the first images of its list."""

    @property
    def base(self) -> str:
        """The name of the base order: BE, or BE + CE with the size of its pools."""
        return base_name(self.pool_size)

    @property
    def pool_size(self) -> int:
        """The items of a query that the cross-encoder scored; 0 without one."""
        return self.image_pool_logits.shape[1]

    @property
    def depth(self) -> int:
        """The entries of the shorter lists."""
        return min(each.shape[1] for each in self.lists.values())

    def without_pools(self) -> "CorpusNeighbours":
        """Returns the same neighbours without pools of the cross-encoder."""
        return with_pools(self, {}, np.zeros((len(self.images), 0)), np.zeros((len(self.texts), 0)))

    def cross_similarity(self) -> Scores:
        """Returns [I, T]: the base's similarity of each image to each text.

        It is the bi-encoder's, except that the pairs in a pool of their image or of their text
        exchange their cosines: the pair with the largest match logit gets the largest cosine, and
        so on. So pools have the cross-encoder's order, and all similarities are on the scale of
        cosines, with which LeaPRR averages its own. Logits have no fixed scale: in a model that
        learned which pair is better, their zero and unit mean nothing, and all sigmoids may be 1.
        """
        similarity_IT: Scores = self.images.astype(np.float64) @ self.texts.T.astype(np.float64)
        if not self.pool_size:
            return similarity_IT
        logits_IT = np.full(similarity_IT.shape, -np.inf)
        by_image = self.lists["texts_of_image"][:, : self.pool_size]
        by_text = self.lists["images_of_text"][:, : self.pool_size]
        np.put_along_axis(logits_IT, by_image, self.image_pool_logits, axis=1)
        np.put_along_axis(logits_IT.T, by_text, self.text_pool_logits, axis=1)
        is_pooled_IT = np.isfinite(logits_IT)
        cosines = similarity_IT[is_pooled_IT]
        # Equal logits keep the bi-encoder's order, and what is equal in both the order of ids.
        best_first = np.lexsort((-cosines, -logits_IT[is_pooled_IT]))
        shared = np.empty_like(cosines)
        shared[best_first] = -np.sort(-cosines)
        similarity_IT[is_pooled_IT] = shared
        return similarity_IT

    def similarity_lists(self) -> SimilarityLists:
        """Returns LeaPRR's view of images that find texts.

        Over a cross-encoder, a query knows the order of its own pool and of no other.
        """
        lists = self.lists
        image_pools = _reranked(lists["texts_of_image"], self.image_pool_logits)
        text_pools = _reranked(lists["images_of_text"], self.text_pool_logits)
        return SimilarityLists(
            self.without_pools().cross_similarity().astype(np.float32),
            self.images @ self.images.T,
            self.texts @ self.texts.T,
            np.arange(len(self.images)),
            self.image_of_text,
            lists["texts_of_image"],
            lists["images_of_image"],
            lists["texts_of_text"],
            lists["images_of_text"],
            image_pools,
            text_pools,
        )


def _reranked(items_QK: Indices, logits_QP: NDArray[np.float32]) -> Indices | None:
    """Returns int64 [Q, P]: the first items by their logits; None without any."""
    pool_size = logits_QP.shape[1]
    best_first_QP = np.argsort(-logits_QP, axis=1, kind="stable")
    return np.take_along_axis(items_QK, best_first_QP, axis=1) if pool_size else None


def corpus_neighbours(
    source: NeighbourSource,
    image_ids: Sequence[str],
    text_ids: Sequence[str],
    images_ID: Scores,
    texts_TD: Scores,
    image_of_text_T: Sequence[int],
    depth: int,
) -> CorpusNeighbours:
    """Returns the `depth` nearest of each item, in the order of ids, without pools.

    Raises ValueError for an embedding that is NaN or infinite, an image without a text, and a
    corpus of fewer than `depth` images or texts.
    """
    check_depth(depth, len(images_ID), len(texts_TD))
    if not (are_finite(images_ID) and are_finite(texts_TD)):
        raise ValueError("an embedding of the model is NaN or infinite, so nothing is near it")
    without_text = np.setdiff1d(np.arange(len(image_ids)), image_of_text_T)
    if len(without_text):
        raise ValueError(
            f"image {image_ids[without_text[0]]} has no text: leave out records without a caption"
        )
    by_id_I, by_id_T = (
        np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
        for ids in (image_ids, text_ids)
    )
    place_of_image_I = np.argsort(by_id_I)
    images, texts = (
        np.ascontiguousarray(of_all[by_id], np.float32)
        for of_all, by_id in [(images_ID, by_id_I), (texts_TD, by_id_T)]
    )
    return CorpusNeighbours(
        source,
        [image_ids[number] for number in by_id_I],
        [text_ids[number] for number in by_id_T],
        images,
        texts,
        place_of_image_I[np.asarray(image_of_text_T, np.int64)[by_id_T]],
        {
            "texts_of_image": nearest_lists(images @ texts.T, depth),
            "images_of_text": nearest_lists(texts @ images.T, depth),
            "images_of_image": nearest_lists(images @ images.T, depth),
            "texts_of_text": nearest_lists(texts @ texts.T, depth),
        },
        np.zeros((len(images), 0), np.float32),
        np.zeros((len(texts), 0), np.float32),
    )


def with_pools(
    neighbours: CorpusNeighbours,
    lists: Mapping[str, Indices],
    image_logits_IP: Scores,
    text_logits_TP: Scores,
) -> CorpusNeighbours:
    """Returns the same over a cross-encoder with these match logits of the first of each list.

    `lists` replace those of these names.
    """
    return replace(
        neighbours,
        lists={**neighbours.lists, **lists},
        image_pool_logits=image_logits_IP.astype(np.float32),
        text_pool_logits=text_logits_TP.astype(np.float32),
    )


def check_depth(depth: int, image_count: int, text_count: int) -> None:
    """Raises ValueError for a corpus of fewer items than neighbours."""
    for name, count in [("images", image_count), ("texts", text_count)]:
        if count < depth:
            raise ValueError(
                f"lists of {depth} neighbours need as many {name}, and the corpus has {count}; "
                f"take a smaller k, or more {name}"
            )
