"""Lists the indexes of all shards, as far as the caller may search them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from tandem.chassis.access.callers import current_caller
from tandem.contract.deadline import Deadline
from tandem.contract.generation_ids import alias_of
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import IndexSummary
from tandem.contract.limits import MAX_PAGE_SIZE, check_batch_size
from tandem.contract.search.indexes import IndexPage
from tandem.errors import IndexNotFound, InternalFault, TandemError
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.coverage import MISSING_ERRORS, SearchCoverage, missing_reasons, refusal_of
from tandem.search.indexes.alias_book import AliasBook
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

    def __init__(self, shards: Sequence[Shard], book: AliasBook) -> None:
        """Takes shards by number."""
        self._shards = shards
        self._book = book

    async def page(
        self, after: str, size: int, deadline: Deadline, *, full_coverage_required: bool = False
    ) -> IndexPage:
        """Returns the indexes after that id that the caller may search, with items of all shards.

        An alias is listed instead of its generations, with the item counts of the serving one.
        Raises ShardsMissing, or DeadlineExceeded, if no shard answered, or full coverage is
        required and one did not.
        """
        check_batch_size("page_size", size, MAX_PAGE_SIZE)
        if after:
            check_index_id(after)
        if not self._book.has_begun:
            await self._book.begin(deadline)
        caller = current_caller()
        allowed = frozenset("*") if caller is None else caller.searchable_index_ids
        if "*" in allowed:
            return await self._page_of((), after, size, deadline, full_coverage_required)
        own = sorted(each for each in allowed if each > after)
        if not own:
            return IndexPage(())
        page = await self._page_of(own[:size], after, size, deadline, full_coverage_required)
        return replace(page, last=own[size - 1] if len(own) > size else "")

    async def named_each(
        self, outcomes: Sequence[R], asked: Sequence[str]
    ) -> Sequence[R | IndexNotFound]:
        """Returns the outcomes; each IndexNotFound names what was asked, and some indexes.

        Those are indexes that the caller may search; none if no shard answers soon.
        """
        if not any(isinstance(each, IndexNotFound) for each in outcomes):
            return outcomes
        page = IndexPage(())
        with suppress(TandemError):
            page = await self.page("", _NAMED_COUNT, Deadline.after(_NAMING_SECONDS))
        ids = ", ".join(each.index_id for each in page.indexes)
        there_are = f"; there are {ids}{' and others' * bool(page.last)}" if ids else ""
        return [
            IndexNotFound(index_id=name, there_are=there_are)
            if isinstance(each, IndexNotFound)
            else each
            for name, each in zip(asked, outcomes, strict=True)
        ]

    @asynccontextmanager
    async def naming(self, asked: str) -> AsyncIterator[None]:
        """Raises the block's IndexNotFound as one of what was asked, with some indexes."""
        try:
            yield
        except IndexNotFound as error:
            [named] = await self.named_each([error], [asked])
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
        serving = {each.alias: each.serving for each in self._book.records()}
        switched = sorted(
            alias
            for alias, index_id in serving.items()
            if alias != index_id and alias > after and (not index_ids or alias in index_ids)
        )[:size]

        async def listed(shard: Shard) -> tuple[Sequence[IndexSummary], Sequence[IndexSummary]]:
            plain = await shard.list_indexes(after, size, index_ids, in_time)
            if not switched:
                return plain, ()
            own = [serving[alias] for alias in switched]
            return plain, await shard.list_indexes("", size, own, in_time)

        asked = map(listed, self._shards)
        answers = await fan_out(*(answer_or_error(each, *_MISSING_ERRORS) for each in asked))
        missing = {n: each for n, each in enumerate(answers) if isinstance(each, TandemError)}
        if missing and (full_coverage_required or len(missing) == len(answers)):
            coverage = SearchCoverage(len(answers), 0, None, missing)
            raise refusal_of(coverage, "the list of indexes", is_demanded=full_coverage_required)
        lists = [each for each in answers if not isinstance(each, TandemError)]
        joined: dict[str, IndexSummary] = {}
        for plain, served in lists:
            known = (
                e for e in plain if serving.get(e.index_id, alias_of(e.index_id)) == e.index_id
            )
            for summary in (*known, *served):
                alias = alias_of(summary.index_id)
                own = replace(summary, index_id=alias)
                joined[alias] = joined[alias] + own if alias in joined else own
        # Further ids of a full list are unknown.
        end = min((plain[-1].index_id for plain, _ in lists if len(plain) == size), default="")
        names = sorted(each for each in joined if not end or each <= end)
        page = tuple(joined[each] for each in names[:size])
        last = page[-1].index_id if len(names) > size else end
        return IndexPage(page, last, missing_reasons(missing))
