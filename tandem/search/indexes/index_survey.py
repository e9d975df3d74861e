"""Asks every shard for the state of an index, and joins the answers."""

from collections.abc import Mapping, Sequence

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import ShardIndex, joined_recalls
from tandem.contract.search.answer_names import DegradationKind
from tandem.contract.search.indexes import IndexDescription
from tandem.errors import IndexNotFound, InternalFault, TandemError
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.coverage import (
    MISSING_ERRORS,
    LastItemCounts,
    SearchCoverage,
    joined_coverage,
    refusal_of,
)
from tandem.stages.retrieval import ShardDescription
from tandem.stages.shard import Shard

# The rest is for the answer from the other shards if one hangs.
_TIME_SHARE = 0.8

# Unlike a search's, this answer names each shard's error, so that no error is hidden by an answer.
_KEPT_ERRORS: tuple[type[TandemError], ...] = (*MISSING_ERRORS, InternalFault, IndexNotFound)


class IndexSurvey:
    """Describes indexes over all shards."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """Takes shards by number."""
        self._shards = shards
        self._counts = LastItemCounts()

    async def describe(
        self, index_id: str, deadline: Deadline, *, full_coverage_required: bool = False
    ) -> IndexDescription:
        """Returns the state of the index.

        Raises IndexNotFound if no shard knows it, and ShardsMissing, or DeadlineExceeded, if none
        that does answered, or full coverage is required and one did not answer.
        """
        check_index_id(index_id)
        in_time = Deadline.after(deadline.left() * _TIME_SHARE)
        asked = (shard.describe_index(index_id, in_time) for shard in self._shards)
        answers = await fan_out(*(answer_or_error(each, *_KEPT_ERRORS) for each in asked))
        described = {n: e for n, e in enumerate(answers) if isinstance(e, ShardDescription)}
        known = list(described.values())
        missing = {
            number: error
            for number, error in enumerate(answers)
            if isinstance(error, TandemError) and not isinstance(error, IndexNotFound)
        }
        coverage = self._coverage(index_id, answers, missing)
        if missing and (full_coverage_required or not known):
            raise refusal_of(
                coverage, "the description of an index", is_demanded=full_coverage_required
            )
        if not known:
            raise IndexNotFound(index_id=index_id)
        shards = [
            ShardIndex(number, each.parts, each.keyword_state) for number, each in described.items()
        ]
        parts = [part for shard in shards for part in shard.parts]
        degradations = []
        if missing:
            degradations.append(DegradationKind.SHARDS_MISSING)
        if any(shard.is_rebuilding for shard in shards):
            degradations.append(DegradationKind.SHARD_REBUILDING)
        return IndexDescription(
            known[0].fingerprint,
            known[0].embedding_dimension,
            tuple(shards),
            tuple(joined_recalls(recall for part in parts for recall in part.live_recalls)),
            coverage.summary,
            tuple(degradations),
        )

    def _coverage(
        self,
        index_id: str,
        answers: Sequence[ShardDescription | TandemError],
        missing: Mapping[int, TandemError],
    ) -> SearchCoverage:
        coverages = []
        for modality in Modality:
            counts = {
                number: _item_count(answer, modality)
                for number, answer in enumerate(answers)
                if number not in missing
            }
            coverages.append(
                self._counts.coverage(index_id, modality, len(answers), counts, missing)
            )
            if any(counts.values()):
                self._counts.note(index_id, modality, counts)
        return joined_coverage(coverages)


def _item_count(answer: ShardDescription | TandemError, modality: Modality) -> int:
    if isinstance(answer, TandemError):
        return 0
    return sum(part.item_count for part in answer.parts if part.modality is modality)
