"""Lists faults to plant in the search and its services, one at a time."""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fault:
    """Replaces `code` by `wrong`. The code is found by its text, because files move."""

    name: str
    code: str
    """As written, except for white space; there must be one such place in the product."""
    wrong: str
    tests: str
    """A regular expression that the names of the tests which reach it begin with."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Returns what finds the code, however its lines are broken."""
        return re.compile(r"\s+".join(map(re.escape, self.code.split())))


_FILTERS: Final = "filter|attribute_wire|attribute_columns|where"
_CALLS: Final = "guard|breaker|retry_budget"
_WRITES: Final = "store_|item_store|group_commit|request_ids|change_log|item_version"
_SHARD: Final = "shard|minimum_sequence|modality_index|servicer|short_searches"
_RANK: Final = "ranking|fusion|hybrid_fusion|diversity|hit"
_RERANK: Final = "rerank|depth|reranker|match_logit_cache|score_batch|kept_scores|stale_scores"
_GUARD: Final = "auth|changed_tokens|guard|access"
_PLACES: Final = "places|admission|crowd|caller_turns|status"
_CURSOR: Final = "cursor|consistency_token"
_SEARCH: Final = "retrieval|coverage|search|time_budget|deadline|degradation"
_ENCODE: Final = (
    "query_encodings|encoding_cache|single_flight|long_texts|buckets|servicer|followed|swap"
)
_CLIENT: Final = "retries|client|documents|ingest_rounds|query|requests|results"

FAULTS: Final = tuple(
    Fault(*each)
    for each in (
        ("a bound without its limit", "value >= at_least)", "value > at_least)", _FILTERS),
        ("a lost not", "return ~self.matching(negated", "return self.matching(negated", _FILTERS),
        (
            "a filter lost on the way to a shard",
            "filter=None if query.filter is None else",
            "filter=None if query.retrieve_k else",
            f"shard_contract|several_answers|{_SEARCH}",
        ),
        (
            "an id a byte too short",
            "if byte_count > MAX_ITEM_ID_BYTES:",
            "if byte_count >= MAX_ITEM_ID_BYTES:",
            "identifiers|item|ingest",
        ),
        ("NUL in an id", r'if "\0" in item_id:', "if not item_id:", "identifiers|item|ingest"),
        (
            "k and n swapped",
            "rerank_k or min(_DEFAULT_RERANK_K, retrieve)",
            "return_n or min(_DEFAULT_RERANK_K, retrieve)",
            f"depth|{_SEARCH}|search_wire",
        ),
        (
            "a deadline that grows",
            "Deadline(self.end_time - seconds)",
            "Deadline(self.end_time + seconds)",
            f"{_SEARCH}|{_CALLS}",
        ),
        (
            "a deadline without its limit",
            "return cls.after(min(seconds, max_seconds))",
            "return cls.after(seconds)",
            "deadline|servicer|longer_times",
        ),
        (
            "an encoding with all the time",
            "Deadline.after(shares.encode * whole_seconds)",
            "Deadline.after(whole_seconds)",
            _SEARCH,
        ),
        (
            "milliseconds that are seconds",
            "str(round(error.retry_delay_seconds * 1000))",
            "str(round(error.retry_delay_seconds))",
            f"{_PLACES}|{_CLIENT}",
        ),
        (
            "a breaker that never opens",
            "self._consecutive_count >= self._rule.consecutive_count or (",
            "self._consecutive_count < 0 or (",
            _CALLS,
        ),
        (
            "a breaker that probes all the time",
            "+ self._rule.probe_seconds self._become(BreakerState.PROBING)",
            "\n        self._become(BreakerState.PROBING)",
            _CALLS,
        ),
        ("retries without a budget", "self._left_count -= 1.0", "pass", _CALLS),
        (
            "overload that opens the breaker",
            "except Overloaded: raise",
            "except Overloaded:\n            self._breaker.failed()\n            raise",
            _CALLS,
        ),
        (
            "a write tried again",
            "self._guard.call_once(partial(self._shard.write, write), deadline)",
            "self._guard.call(partial(self._shard.write, write), deadline)",
            f"shard_contract|ingest|write_id|{_CALLS}|shard_processes|startup|removal|servicer|consistency",
        ),
        (
            "a late shard that is not stopped",
            "number_of_task[task], task.result()) finally: for task in pending: task.cancel()",
            "number_of_task[task], task.result())\n        finally:",
            _SEARCH,
        ),
        (
            "the farthest first",
            "heapq.merge(*shards, key=lambda hit: (-hit.similarity, hit.item_id))",
            "heapq.merge(*shards, key=lambda hit: (hit.similarity, hit.item_id))",
            f"hit|{_SEARCH}",
        ),
        (
            "a cut that keeps the farthest",
            "np.argpartition(-similarities_VN, k - 1, axis=1)",
            "np.argpartition(similarities_VN, k - 1, axis=1)",
            "modality_index|exact_scan|neighbourhood|filtered_recall|shard",
        ),
        (
            "weights swapped",
            "(1 - self._weight) * hit.similarity + self._weight * match.logit",
            "self._weight * hit.similarity + (1 - self._weight) * match.logit",
            _RANK,
        ),
        (
            "diversity with a wrong sign",
            "relevance_weight - 1, out=value",
            "1 - relevance_weight, out=value",
            _RANK,
        ),
        (
            "ranks from 0",
            "for rank in range(1, len(scores) + 1)",
            "for rank in range(len(scores))",
            _RANK,
        ),
        (
            "unlikely items kept",
            "entry.match.probability >= rule.min_probability",
            "entry.match.probability <= rule.min_probability",
            _RANK,
        ),
        (
            "a rerank that stops when it should continue",
            "gap, depth + 1) < rule.stop_chance",
            "gap, depth + 1) > rule.stop_chance",
            f"adaptive_depth|{_RERANK}",
        ),
        (
            "scores that are no numbers",
            "math.isfinite(match.logit) and 0.0 <=",
            "0.0 <=",
            f"reranker_contract|{_RERANK}|several_answers|servicer|{_CALLS}|{_SEARCH}",
        ),
        (
            "scores kept without the model's version",
            r'f"{fingerprint}\0{model_version}\0{asking_caller()}"',
            r'f"{fingerprint}\0{asking_caller()}"',
            _RERANK,
        ),
        (
            "scores kept for all callers",
            r'f"{fingerprint}\0{model_version}\0{asking_caller()}"',
            r'f"{fingerprint}\0{model_version}"',
            f"{_RERANK}|told_by|isolation",
        ),
        (
            "encodings kept without the model's version",
            "QueryKey(digest, truncation_policy, model_version, asking_caller())",
            "QueryKey(digest, truncation_policy, 0, asking_caller())",
            _ENCODE,
        ),
        ("a cache that drops what is used", "self._entries.move_to_end(key)", "pass", _ENCODE),
        (
            "a search that does not see its write",
            "if applied_sequence < query.minimum_sequence:",
            "if applied_sequence < 0:",
            _SHARD,
        ),
        (
            "a search by another model",
            "if fingerprint != self.info.fingerprint:",
            "if not fingerprint:",
            _SHARD,
        ),
        (
            "a write by another model",
            "if write.fingerprint != info.fingerprint:",
            "if not write.fingerprint:",
            f"{_WRITES}|{_SHARD}",
        ),
        (
            "a request id for another write",
            "if digest != _digest(write).hex():",
            "if not digest:",
            f"{_WRITES}|write_id",
        ),
        (
            "answers for other writes",
            "for (_, future), outcome in zip(batch, outcomes, strict=True)",
            "for (_, future), outcome in zip(batch, reversed(outcomes), strict=True)",
            _WRITES,
        ),
        ("a token without its right", "caller.check_scope(Scope(access.value))", "pass", _GUARD),
        ("a caller with every place", "held + more <= most / 2", "held + more <= most", _PLACES),
        (
            "a write that a client tries again",
            "response = await self._call( self._connection.current().search.RemoveIndex, request, "
            "is_repeatable=False",
            "response = await self._call(self._connection.current().search.RemoveIndex, request, "
            "is_repeatable=True",
            f"{_CLIENT}|remov|replicas|server|engine|search_calls",
        ),
        (
            "a cursor that is damaged",
            "if zlib.crc32(compressed) != checksum:",
            "if not checksum:",
            _CURSOR,
        ),
        (
            "a token of a shard too many",
            "shard >= shard_count or sequence < 0",
            "shard > shard_count or sequence < 0",
            _CURSOR,
        ),
        (
            "a body over its limit",
            "if byte_count > max_bytes: raise MessageTooLarge",
            "if byte_count > 2 * max_bytes: raise MessageTooLarge",
            "edge|odd_requests|serving|search|items",
        ),
        (
            "documents with the worst first",
            "key=lambda each: _key(each[1]), reverse=True)",
            "key=lambda each: _key(each[1]))",
            _CLIENT,
        ),
    )
)
