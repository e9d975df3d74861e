"""Counts the inference that a call caused, and sums it over the services."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

from tandem.contract.field_wire import DURATION_WIRE
from tandem.contract.record_wire import RecordWire
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

    def __add__(self, other: "InferenceCost") -> "InferenceCost":
        """Sums field by field; a value that both lack stays unknown."""
        sums: dict[str, Any] = {
            each.name: _sum(getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
        }
        return InferenceCost(**sums)

    def divided(self, sizes: Sequence[int]) -> "list[InferenceCost]":
        """Returns shares in proportion to the sizes; they add up to the whole."""
        whole = sum(sizes) or 1

        def share(value: Any, end: int, size: int) -> Any:  # noqa: ANN401 (of any field)
            if isinstance(value, int):
                # Differences of rounded sums add up; rounded differences would not.
                return value * end // whole - value * (end - size) // whole
            return None if value is None else value * size / whole

        shares: list[dict[str, Any]] = [
            {each.name: share(getattr(self, each.name), end, size) for each in fields(self)}
            for end, size in zip(accumulate(sizes), sizes, strict=True)
        ]
        return [InferenceCost(**each) for each in shares]


COST_WIRE = RecordWire(
    InferenceCost,
    cost_pb2.InferenceCost,
    triton_queue_seconds=DURATION_WIRE.named("triton_queue_duration"),
    triton_compute_seconds=DURATION_WIRE.named("triton_compute_duration"),
)


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
