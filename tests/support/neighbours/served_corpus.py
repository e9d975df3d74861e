"""A corpus of random embeddings, as an index holds it and as LeaPRR reads it offline."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.lab.neighbours.leaprr.config import Profile, leaprr_config
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel, refined_scores
from tandem.lab.neighbours.lists.neighbour_lists import Scores, SimilarityLists
from tests.support.neighbours.similarity_views import similarity_view

DIMENSION = 12
FINGERPRINT = "model-a"
Embeddings = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ServedCorpus:
    """Holds float32 unit embeddings of images [I, d] and texts [T, d]."""

    images: Embeddings
    texts: Embeddings

    @classmethod
    def made(cls, image_count: int, text_count: int, seed: int) -> "ServedCorpus":
        """Draws both at random."""
        rng = np.random.default_rng(seed)
        return cls(_units(rng, image_count), _units(rng, text_count))

    def of(self, modality: Modality) -> Embeddings:
        """Returns the embeddings of one modality."""
        return self.texts if modality is Modality.TEXT else self.images

    def lists(self) -> SimilarityLists:
        """Returns the view of images that find texts, with lists of everything."""
        return similarity_view(
            self.images @ self.texts.T,
            self.images @ self.images.T,
            self.texts @ self.texts.T,
            np.arange(len(self.texts)) % len(self.images),
            depth=max(len(self.images), len(self.texts)),
        )

    def reranked_lists(self, logits_IT: Scores, pool_size: int) -> SimilarityLists:
        """Returns the same view over a cross-encoder that gives these match logits."""
        lists = self.lists()
        pools = []
        for near, logits_QN in [
            (lists.items_of_query, logits_IT),
            (lists.queries_of_item, logits_IT.T),
        ]:
            near_QP = near[:, :pool_size]
            of_pool_QP = np.take_along_axis(logits_QN, near_QP, axis=1)
            best_first_QP = np.argsort(-of_pool_QP, axis=1, kind="stable")
            pools.append(np.take_along_axis(near_QP, best_first_QP, axis=1))
        return replace(lists, query_pools=pools[0], item_pools=pools[1])

    def offline_scores(
        self,
        model: LeaprrModel,
        modality: Modality,
        number: int,
        lists: SimilarityLists | None = None,
    ) -> dict[int, float]:
        """Returns the scores that the model gives the items of one query, by their number."""
        lists = lists or self.lists()
        is_text = modality is Modality.TEXT
        items, scores = refined_scores(
            model, lists.reversed() if is_text else lists, is_text_query=is_text
        )
        return dict(zip(items[number].tolist(), scores[number].tolist(), strict=True))


def tiny_leaprr(profile: Profile, seed: int = 1, **fields: object) -> LeaprrModel:
    """Returns networks of random weights over 6 pillars, with 9 texts or 5 images."""
    config = replace(
        leaprr_config(profile),
        image_query_neighbours=9,
        text_query_neighbours=5,
        pillar_count=6,
        affinity_neighbours=3,
    )
    if profile == "code":
        config = replace(config, width=8, head_count=2, fixed_threshold_nodes=(10, 6))
    return LeaprrModel.untrained(replace(config, **fields), seed)  # type: ignore[arg-type]


def _units(rng: np.random.Generator, count: int) -> Embeddings:
    vectors = rng.standard_normal((count, DIMENSION))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
