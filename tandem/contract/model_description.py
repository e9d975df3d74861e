"""Describes a model to its callers, with its calibration and its rule for early stopping."""

import math
from dataclasses import dataclass

from tandem.contract.modality import Modality
from tandem.contract.record_wire import Field, RecordWire
from tandem.v1 import model_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class ProbabilityCalibration:
    """Platt scaling: probability = sigmoid(scale * score + bias), mostly of a match logit."""

    scale: float = 1.0
    """Above 0, so that it keeps the order."""
    bias: float = 0.0

    def probability(self, score: float) -> float:
        """Returns the probability of a match, without overflow for any finite score."""
        return sigmoid(self.scale * score + self.bias)


def relevance(match_logit: float, match_probability: float | None) -> float:
    """Returns the match on a scale of 0 to 1, in the order of the logits.

    It is the probability, or the sigmoid of an uncalibrated model's logit, which is none.
    """
    return sigmoid(match_logit) if match_probability is None else match_probability


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveDepthRule:
    """Decides when to stop reranking: when an unread candidate is unlikely to rank first.

    The chance is a logistic regression over four features, fitted on held-out searches.
    """

    first_count: int
    """Candidates scored before the first decision."""
    further_count: int
    """Candidates scored between decisions."""
    intercept: float
    best_logit_weight: float
    margin_weight: float
    similarity_gap_weight: float
    log_rank_weight: float
    stop_chance: float

    def chance(
        self, best_logit: float, second_logit: float, similarity_gap: float, next_rank: int
    ) -> float:
        """Returns the chance that an unread candidate would rank first.

        The logits are the two highest so far. `similarity_gap` is the first candidate's similarity
        minus the next one's, `next_rank` the next one's rank in bi-encoder order, from 1.
        """
        return sigmoid(
            self.intercept
            + self.best_logit_weight * best_logit
            + self.margin_weight * (best_logit - second_logit)
            + self.similarity_gap_weight * similarity_gap
            + self.log_rank_weight * math.log(next_rank)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourModelDescription:
    """A model (LeaPRR) that orders items by their neighbours."""

    fingerprint: str
    base_fingerprint: str
    """The model over whose embeddings it was trained."""
    text_query_item_count: int
    """The images that it orders for a text."""
    image_query_item_count: int
    pillar_count: int
    """Nearest items of each modality, with which it compares the query and its items."""
    neighbour_count: int
    """Nearest items of each modality by which it compares two items."""
    includes_query_pillar: bool
    """Whether the query is the first of its own modality's pillars."""
    rerank_k: int = 0
    """Of the searches whose items it orders, in the CE's order; 0 for the BE's."""

    def item_count(self, query_modality: Modality) -> int:
        """Returns how many items it orders for a query."""
        is_text = query_modality is Modality.TEXT
        return self.text_query_item_count if is_text else self.image_query_item_count


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """A model and its limits."""

    fingerprint: str
    family: str
    precision: str
    embedding_dimension: int
    max_text_token_count: int
    max_text_bytes: int
    max_image_bytes: int
    max_image_pixel_count: int
    probability_calibration: ProbabilityCalibration | None = None
    adaptive_depth_rule: AdaptiveDepthRule | None = None
    version: int = 1
    """The version that serves; the two rules above belong to it."""
    region_feature_width: int = 0
    """The features of a region; 0 for a model that reads images."""
    max_region_count: int = 0
    neighbour_model: NeighbourModelDescription | None = None
    """What rerank_svc serves; None if nothing orders by neighbours."""
    text_similarity_calibration: ProbabilityCalibration | None = None
    """From the similarity of two texts to the probability that both describe the same."""


def sigmoid(value: float) -> float:
    """Returns 1 / (1 + exp(-value)), without overflow for any finite value."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))


CALIBRATION_WIRE = RecordWire(ProbabilityCalibration, pb.ProbabilityCalibration)
MODEL_WIRE = RecordWire(
    ModelDescription,
    pb.ModelDescription,
    probability_calibration=CALIBRATION_WIRE,
    text_similarity_calibration=CALIBRATION_WIRE,
    adaptive_depth_rule=RecordWire(AdaptiveDepthRule, pb.AdaptiveDepthRule),
    neighbour_model=RecordWire(NeighbourModelDescription, pb.NeighbourModel),
    # 0 of a service of an earlier release
    version=Field(int, lambda version: version or 1),
)
