"""Caches the encodings of queries, also for while the model is unavailable."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tandem.chassis.access.callers import asking_caller
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.capacity.single_flight_cache import Computation
from tandem.contract.content import Content, Encoding, TextContent, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.errors import ModelOutputInvalid, ModelUnavailable, TandemError
from tandem.local.encoding.encoder import ModelEncoder
from tandem.local.encoding.encoding_cache import QueryKey, content_digest, detached, make_cache
from tandem.model_io.repository.priority import Priority
from tandem.stages.encoding import EncodedBatch


class QueryEncodings:
    """Encodes queries through a cache, which lives no longer than its model."""

    def __init__(self, encoder: ModelEncoder, turns: CallerTurns, cache_bytes: int) -> None:
        """Caches up to `cache_bytes` of encodings; 0 turns the cache off."""
        self._encoder = encoder
        self._turns = turns
        self._cache = make_cache(cache_bytes)
        self._is_model_down = False

    async def check(self) -> None:
        """Checks the encoder, and records whether its model answers."""
        try:
            await self._encoder.check()
        except TandemError:
            self._is_model_down = True
            raise
        self._is_model_down = False

    async def encode(
        self,
        contents: Sequence[Content | TandemError],
        timeout_seconds: float,
        truncation_policy: TruncationPolicy,
    ) -> EncodedBatch:
        """Returns an encoding or an error for each content.

        An input that is an error stays one. If the model is unavailable and some encodings are
        cached, the others get its error; if none is cached, that error is raised.
        """
        start_time = time.monotonic()
        deadline = Deadline.after(timeout_seconds)
        model_version = self._encoder.serving_version
        good = {
            number: content
            for number, content in enumerate(contents)
            if not isinstance(content, TandemError)
        }
        digests = await self._digests(list(good.values()))
        keys = {
            number: QueryKey(digest, truncation_policy, model_version, asking_caller())
            for number, digest in zip(good, digests, strict=True)
        }
        wanted = {key: good[number] for number, key in keys.items()}
        outcomes: dict[QueryKey, Encoding | TandemError] = dict(self._cache.find(list(wanted)))
        kept_count = len(outcomes)
        keyed_seconds = time.monotonic() - start_time
        made = EncodedBatch([], self._encoder.fingerprint)
        if lacking := {key: each for key, each in wanted.items() if key not in outcomes}:
            try:
                made = await self._made(lacking, truncation_policy, model_version, deadline)
                outcomes.update(zip(lacking, made.outcomes, strict=True))
            except (ModelUnavailable, ModelOutputInvalid) as error:
                if not kept_count:
                    raise
                outcomes.update(dict.fromkeys(lacking, error.kept()))
        preprocess_seconds = keyed_seconds + made.preprocess_seconds
        return EncodedBatch(
            [
                content if isinstance(content, TandemError) else outcomes[keys[number]]
                for number, content in enumerate(contents)
            ],
            made.fingerprint,
            replace(made.cost, cache_hit_count=made.cost.cache_hit_count + kept_count),
            self._is_model_down and kept_count > 0,
            model_version,
            preprocess_seconds,
            max(0.0, time.monotonic() - start_time - preprocess_seconds),
        )

    async def _made(
        self,
        contents: Mapping[QueryKey, Content],
        truncation_policy: TruncationPolicy,
        model_version: int,
        deadline: Deadline,
    ) -> EncodedBatch:
        """Returns the outcomes in order, each computed by this call or another."""

        async def encode(
            keys: Sequence[QueryKey],
        ) -> Computation[Encoding | TandemError, EncodedBatch]:
            try:
                encoded = await self._encoder.encode(
                    [contents[key] for key in keys],
                    deadline.left(),
                    truncation_policy,
                    Priority.QUERY,
                    model_version,
                )
            except (ModelUnavailable, ModelOutputInvalid):
                self._is_model_down = True
                raise
            if any(isinstance(each, Encoding) for each in encoded.outcomes):
                self._is_model_down = False
            outcomes = [
                detached(each) if isinstance(each, Encoding) else each for each in encoded.outcomes
            ]
            return Computation(outcomes, encoded)

        lookup = await self._cache.get(list(contents), encode, max(0.0, deadline.left()))
        cost = sum((report.cost for report in lookup.reports), InferenceCost())
        return EncodedBatch(
            lookup.values,
            self._encoder.fingerprint,
            replace(cost, cache_hit_count=lookup.hit_count, cache_miss_count=lookup.miss_count),
            preprocess_seconds=sum(report.preprocess_seconds for report in lookup.reports),
            inference_seconds=sum(report.inference_seconds for report in lookup.reports),
        )

    async def _digests(self, contents: Sequence[Content]) -> list[bytes]:
        if all(isinstance(content, TextContent) for content in contents):
            return [content_digest(content) for content in contents]
        # Hashing megabytes of images takes milliseconds, which would block the event loop.
        return await self._turns.run(lambda: [content_digest(content) for content in contents])
