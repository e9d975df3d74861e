"""A model as its callers need to know it, and the two rules that were measured for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tandem.v1 import model_service_pb2


@dataclass(frozen=True, slots=True)
class ProbabilityCalibration:
    """Platt scaling: probability = sigmoid(scale * match logit + bias)."""

    scale: float = 1.0
    """Above 0, so that the order stays."""
    bias: float = 0.0

    def probability(self, match_logit: float) -> float:
        """Returns the probability of a match; no overflow for any finite logit."""
        return sigmoid(self.scale * match_logit + self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveDepthRule:
    """When a rerank may stop: when the chance that what is left would come first is low.

    The chance is a logistic regression over four features, fitted on held-out searches.
    """

    first_count: int
    """Candidates read before the rule is first asked."""
    further_count: int
    """Candidates read before it is asked again."""
    intercept: float
    best_logit_weight: float
    margin_weight: float
    similarity_gap_weight: float
    log_rank_weight: float
    stop_chance: float

    def chance(
        self, best_logit: float, second_logit: float, similarity_gap: float, next_rank: int
    ) -> float:
        """Returns how likely an unread candidate would come first.

        The logits are the two highest so far, `similarity_gap` the first candidate's similarity
        less the next one's, `next_rank` that one's place in retrieval order, from 1.
        """
        return sigmoid(
            self.intercept
            + self.best_logit_weight * best_logit
            + self.margin_weight * (best_logit - second_logit)
            + self.similarity_gap_weight * similarity_gap
            + self.log_rank_weight * math.log(next_rank)
        )


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
    """Which of the model's versions serves; the two rules above are measured of it."""


def sigmoid(value: float) -> float:
    """Returns 1 / (1 + exp(-value)), without overflow for any finite value."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))


def model_to_proto(model: ModelDescription) -> model_service_pb2.ModelDescription:
    """Returns the message that `model_from_proto` reads as `model`."""
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
    )


def model_from_proto(message: model_service_pb2.ModelDescription) -> ModelDescription:
    """Returns the description."""
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
        version=message.version or 1,  # a service of an earlier release knows of one alone
    )
