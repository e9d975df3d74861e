"""Counts the inference that a call caused, and sums it over the services."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.contract.duration_wire import duration_from_proto, duration_to_proto
from tandem.v1 import cost_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCost:
    """The inference of one call, or the sum of several."""

    pair_count: int = 0
    """(query, candidate) pairs that the cross-encoder scored."""
    token_count: int = 0
    """Text and image tokens that the models read."""
    padded_token_count: int = 0
    """The same with padding."""
    cache_hit_count: int = 0
    cache_miss_count: int = 0
    triton_queue_seconds: float | None = None
    """Summed over requests; None if unknown."""
    triton_compute_seconds: float | None = None

    def __add__(self, other: InferenceCost) -> InferenceCost:
        """Sums field by field; a value that both lack stays unknown."""
        return InferenceCost(
            pair_count=self.pair_count + other.pair_count,
            token_count=self.token_count + other.token_count,
            padded_token_count=self.padded_token_count + other.padded_token_count,
            cache_hit_count=self.cache_hit_count + other.cache_hit_count,
            cache_miss_count=self.cache_miss_count + other.cache_miss_count,
            triton_queue_seconds=_sum(self.triton_queue_seconds, other.triton_queue_seconds),
            triton_compute_seconds=_sum(self.triton_compute_seconds, other.triton_compute_seconds),
        )


def cost_to_proto(cost: InferenceCost) -> cost_pb2.InferenceCost:
    queue, compute = cost.triton_queue_seconds, cost.triton_compute_seconds
    return cost_pb2.InferenceCost(
        pair_count=cost.pair_count,
        token_count=cost.token_count,
        padded_token_count=cost.padded_token_count,
        cache_hit_count=cost.cache_hit_count,
        cache_miss_count=cost.cache_miss_count,
        triton_queue_duration=None if queue is None else duration_to_proto(queue),
        triton_compute_duration=None if compute is None else duration_to_proto(compute),
    )


def cost_from_proto(message: cost_pb2.InferenceCost) -> InferenceCost:
    queue, compute = message.triton_queue_duration, message.triton_compute_duration
    return InferenceCost(
        pair_count=message.pair_count,
        token_count=message.token_count,
        padded_token_count=message.padded_token_count,
        cache_hit_count=message.cache_hit_count,
        cache_miss_count=message.cache_miss_count,
        triton_queue_seconds=duration_from_proto(queue)
        if message.HasField("triton_queue_duration")
        else None,
        triton_compute_seconds=duration_from_proto(compute)
        if message.HasField("triton_compute_duration")
        else None,
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
