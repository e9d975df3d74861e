"""Stops a rerank early, by the rule that was measured for its model."""

import time
from collections.abc import Sequence

from tandem.contract.deadline import Deadline
from tandem.contract.model_description import AdaptiveDepthRule, ModelDescription
from tandem.errors import ModelUnavailable, TandemError
from tandem.search.calls.guarded import GuardedReranker
from tandem.stages.hit import Hit

# A search waits no longer for a rule; without one it is reranked in full.
_ASK_SECONDS = 0.2

_ASK_AGAIN_SECONDS = 1.0


class DepthRules:
    """Gets each model's rule from a rerank_svc once, and caches it."""

    def __init__(self, describers: Sequence[GuardedReranker]) -> None:
        self._describers = describers
        self._described: dict[tuple[str, int], ModelDescription] = {}
        self._ask_time = 0.0
        """When the next attempt is allowed, after one that failed."""

    async def rule(
        self, fingerprint: str, model_version: int, deadline: Deadline
    ) -> AdaptiveDepthRule | None:
        """Returns the rule of that version of the model, or None if it has none or none in time.

        Version 0 stands for the last version that a rerank_svc described.
        """
        known = self._described.get((fingerprint, model_version))
        if known is None and time.monotonic() >= self._ask_time:
            known = await self._ask(fingerprint, model_version, deadline)
        return known.adaptive_depth_rule if known else None

    async def describe(self, deadline: Deadline) -> ModelDescription:
        """Returns the first description that a rerank_svc gives; raises the last one's error."""
        error: TandemError = ModelUnavailable(model="cross-encoder", why="no rerank_svc answers")
        for describer in self._describers:
            if describer.is_refusing:
                continue
            try:
                return await describer.describe_model(deadline)
            except TandemError as failure:
                error = failure
        raise error

    async def _ask(
        self, fingerprint: str, model_version: int, deadline: Deadline
    ) -> ModelDescription | None:
        try:
            model = await self.describe(min(deadline, Deadline.after(_ASK_SECONDS)))
        except TandemError:
            self._ask_time = time.monotonic() + _ASK_AGAIN_SECONDS
            return None
        if model.fingerprint != fingerprint or model_version not in (0, model.version):
            self._ask_time = time.monotonic() + _ASK_AGAIN_SECONDS
            return None
        self._described[fingerprint, model.version] = self._described[fingerprint, 0] = model
        return model


def next_look(rule: AdaptiveDepthRule, depth: int) -> int:
    """Returns how many candidates to score before the rule is applied again."""
    if depth < rule.first_count:
        return rule.first_count - depth
    further_count = max(1, rule.further_count)
    return further_count - (depth - rule.first_count) % further_count


def is_deep_enough(
    rule: AdaptiveDepthRule, hits: Sequence[Hit], depth: int, logits: Sequence[float]
) -> bool:
    """Returns whether the candidates after `depth` need not be scored.

    `logits` are those down to that depth. The rule compares the two best, so it applies once there
    are two, and only at its looks.
    """
    is_look_due = depth >= rule.first_count and next_look(rule, depth) == max(1, rule.further_count)
    if not is_look_due or len(logits) < 2 or depth >= len(hits):
        return False
    second, best = sorted(logits)[-2:]
    gap = hits[0].similarity - hits[depth].similarity
    return rule.chance(best, second, gap, depth + 1) < rule.stop_chance
