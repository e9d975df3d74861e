"""Lists the indexes of all shards, as far as the caller may search them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from tandem.chassis.access.callers import current_caller
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import IndexSummary
from tandem.contract.limits import MAX_PAGE_SIZE, check_batch_size
from tandem.contract.search.indexes import IndexPage
from tandem.errors import IndexNotFound, InternalFault, TandemError
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.coverage import MISSING_ERRORS, SearchCoverage, missing_reasons, refusal_of
from tandem.stages.shard import Shard

R = TypeVar("R")

# The rest is for the answer from the other shards if one hangs.
_TIME_SHARE = 0.8
# An error's message is short, and comes soon.
_NAMED_COUNT = 8
_NAMING_SECONDS = 1.0
# A shard of an earlier version cannot list, which is an internal fault.
_MISSING_ERRORS: tuple[type[TandemError], ...] = (*MISSING_ERRORS, InternalFault)


class IndexList:
    """Lists the indexes of every shard."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """Takes shards by number."""
        self._shards = shards

    async def page(
        self, after: str, size: int, deadline: Deadline, *, full_coverage_required: bool = False
    ) -> IndexPage:
        """Returns the indexes after that id that the caller may search, with items of all shards.

        Raises ShardsMissing, or DeadlineExceeded, if no shard answered, or full coverage is
        required and one did not.
        """
        check_batch_size("page_size", size, MAX_PAGE_SIZE)
        if after:
            check_index_id(after)
        caller = current_caller()
        allowed = frozenset("*") if caller is None else caller.searchable_index_ids
        if "*" in allowed:
            return await self._page_of((), after, size, deadline, full_coverage_required)
        own = sorted(each for each in allowed if each > after)
        if not own:
            return IndexPage(())
        page = await self._page_of(own[:size], after, size, deadline, full_coverage_required)
        return replace(page, last=own[size - 1] if len(own) > size else "")

    async def named_each(self, outcomes: Sequence[R]) -> Sequence[R | IndexNotFound]:
        """Returns the outcomes, with the ids of some indexes in each IndexNotFound.

        Those are indexes that the caller may search. Returns outcomes as they are if no shard
        answers soon.
        """
        if not any(isinstance(each, IndexNotFound) for each in outcomes):
            return outcomes
        try:
            page = await self.page("", _NAMED_COUNT, Deadline.after(_NAMING_SECONDS))
        except TandemError:
            return outcomes
        ids = ", ".join(each.index_id for each in page.indexes)
        there_are = f"; there are {ids}{' and others' * bool(page.last)}" if ids else ""
        return [
            IndexNotFound(index_id=each.metadata["index_id"], there_are=there_are)
            if isinstance(each, IndexNotFound)
            else each
            for each in outcomes
        ]

    @asynccontextmanager
    async def naming(self) -> AsyncIterator[None]:
        """Raises the block's IndexNotFound with the ids of some indexes."""
        try:
            yield
        except IndexNotFound as error:
            [named] = await self.named_each([error])
            raise named from None

    async def _page_of(
        self,
        index_ids: Sequence[str],
        after: str,
        size: int,
        deadline: Deadline,
        full_coverage_required: bool,
    ) -> IndexPage:
        in_time = Deadline.after(deadline.left() * _TIME_SHARE)
        asked = (each.list_indexes(after, size, index_ids, in_time) for each in self._shards)
        answers = await fan_out(*(answer_or_error(each, *_MISSING_ERRORS) for each in asked))
        missing = {n: each for n, each in enumerate(answers) if isinstance(each, TandemError)}
        if missing and (full_coverage_required or len(missing) == len(answers)):
            coverage = SearchCoverage(len(answers), 0, None, missing)
            raise refusal_of(coverage, "the list of indexes", is_demanded=full_coverage_required)
        lists = [each for each in answers if not isinstance(each, TandemError)]
        joined: dict[str, IndexSummary] = {}
        for summary in (each for found in lists for each in found):
            known = joined.get(summary.index_id)
            joined[summary.index_id] = summary if known is None else known + summary
        found_ids = sorted(joined)
        has_more = len(found_ids) > size or any(len(each) == size for each in lists)
        page = tuple(joined[each] for each in found_ids[:size])
        last = page[-1].index_id if has_more and page else ""
        return IndexPage(page, last, missing_reasons(missing))
