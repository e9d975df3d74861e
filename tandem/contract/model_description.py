"""Describes a model to its callers, with its calibration and its rule for early stopping."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tandem.v1 import model_service_pb2


@dataclass(frozen=True, slots=True)
class ProbabilityCalibration:
    """Platt scaling: probability = sigmoid(scale * match logit + bias)."""

    scale: float = 1.0
    """Above 0, so that it keeps the order."""
    bias: float = 0.0

    def probability(self, match_logit: float) -> float:
        """Returns the probability of a match, without overflow for any finite logit."""
        return sigmoid(self.scale * match_logit + self.bias)


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


def sigmoid(value: float) -> float:
    """Returns 1 / (1 + exp(-value)), without overflow for any finite value."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))


def model_to_proto(model: ModelDescription) -> model_service_pb2.ModelDescription:
    """Returns the message for `model`."""
    calibration, rule = model.probability_calibration, model.adaptive_depth_rule
    return model_service_pb2.ModelDescription(
        fingerprint=model.fingerprint,
        family=model.family,
        precision=model.precision,
        embedding_dimension=model.embedding_dimension,
        max_text_token_count=model.max_text_token_count,
        max_text_bytes=model.max_text_bytes,
        max_image_bytes=model.max_image_bytes,
        max_image_pixel_count=model.max_image_pixel_count,
        region_feature_width=model.region_feature_width,
        max_region_count=model.max_region_count,
        probability_calibration=model_service_pb2.ProbabilityCalibration(
            scale=calibration.scale, bias=calibration.bias
        )
        if calibration
        else None,
        adaptive_depth_rule=model_service_pb2.AdaptiveDepthRule(
            first_count=rule.first_count,
            further_count=rule.further_count,
            intercept=rule.intercept,
            best_logit_weight=rule.best_logit_weight,
            margin_weight=rule.margin_weight,
            similarity_gap_weight=rule.similarity_gap_weight,
            log_rank_weight=rule.log_rank_weight,
            stop_chance=rule.stop_chance,
        )
        if rule
        else None,
        version=model.version,
        neighbour_model=_neighbour_model_to_proto(model.neighbour_model)
        if model.neighbour_model
        else None,
    )


def model_from_proto(message: model_service_pb2.ModelDescription) -> ModelDescription:
    """Returns the description of a message."""
    calibration, rule = message.probability_calibration, message.adaptive_depth_rule
    return ModelDescription(
        fingerprint=message.fingerprint,
        family=message.family,
        precision=message.precision,
        embedding_dimension=message.embedding_dimension,
        max_text_token_count=message.max_text_token_count,
        max_text_bytes=message.max_text_bytes,
        max_image_bytes=message.max_image_bytes,
        max_image_pixel_count=message.max_image_pixel_count,
        region_feature_width=message.region_feature_width,
        max_region_count=message.max_region_count,
        probability_calibration=ProbabilityCalibration(calibration.scale, calibration.bias)
        if message.HasField("probability_calibration")
        else None,
        adaptive_depth_rule=AdaptiveDepthRule(
            first_count=rule.first_count,
            further_count=rule.further_count,
            intercept=rule.intercept,
            best_logit_weight=rule.best_logit_weight,
            margin_weight=rule.margin_weight,
            similarity_gap_weight=rule.similarity_gap_weight,
            log_rank_weight=rule.log_rank_weight,
            stop_chance=rule.stop_chance,
        )
        if message.HasField("adaptive_depth_rule")
        else None,
        version=message.version or 1,  # A service of an earlier release has one version only.
        neighbour_model=_neighbour_model_from_proto(message.neighbour_model)
        if message.HasField("neighbour_model")
        else None,
    )


def _neighbour_model_to_proto(
    model: NeighbourModelDescription,
) -> model_service_pb2.NeighbourModel:
    return model_service_pb2.NeighbourModel(
        fingerprint=model.fingerprint,
        base_fingerprint=model.base_fingerprint,
        text_query_item_count=model.text_query_item_count,
        image_query_item_count=model.image_query_item_count,
        pillar_count=model.pillar_count,
        neighbour_count=model.neighbour_count,
        includes_query_pillar=model.includes_query_pillar,
    )


def _neighbour_model_from_proto(
    message: model_service_pb2.NeighbourModel,
) -> NeighbourModelDescription:
    return NeighbourModelDescription(
        fingerprint=message.fingerprint,
        base_fingerprint=message.base_fingerprint,
        text_query_item_count=message.text_query_item_count,
        image_query_item_count=message.image_query_item_count,
        pillar_count=message.pillar_count,
        neighbour_count=message.neighbour_count,
        includes_query_pillar=message.includes_query_pillar,
    )
