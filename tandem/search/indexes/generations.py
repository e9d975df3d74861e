"""Takes operators' requests about generations, and says how far each generation is."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.contract.deadline import Deadline
from tandem.contract.generation_ids import alias_of, generation_id, named_generation
from tandem.contract.identifiers import check_index_id
from tandem.errors import (
    DeadlineExceeded,
    GenerationRefused,
    IndexNotFound,
    NoteChanged,
    TandemError,
)
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.indexes.follower import FollowerProgress
from tandem.search.indexes.index_survey import IndexSurvey
from tandem.search.indexes.kept_generations import (
    DROP,
    ROLL_BACK,
    followed_generation,
    other_generation,
)
from tandem.search.indexes.router import check_alias
from tandem.stages.aliases import AliasRecord, Generation, WantedChange
from tandem.stages.encoding import Encoder
from tandem.stages.notes import WRITER_PREFIX, WriterRule
from tandem.stages.shard import Shard

_POLL_SECONDS = 0.1
# Of a caller; then another request may take its place, as perhaps no orchestrator has the model.
_WAIT_SECONDS = 120.0
_DESCRIBE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """Says how far a generation is, over all shards."""

    generation: Generation
    item_count: int
    progress: Sequence[FollowerProgress]
    """Of each shard that something follows into it on."""
    lag_count: int
    is_complete: bool
    """Whether every shard answered."""


class Generations:
    """Creates, promotes, rolls back, drops and lists generations, on behalf of operators.

    What changes an index is written into the alias record, for the process that keeps it.
    """

    def __init__(
        self, book: AliasBook, encoders: Sequence[Encoder], shards: Sequence[Shard]
    ) -> None:
        """Takes the encoders of all models, the next one's last."""
        self._book, self._encoders, self._shards = book, encoders, shards
        self._survey = IndexSurvey(shards)

    async def create(self, alias: str, deadline: Deadline) -> Generation:
        """Begins a generation of the second model, and returns it.

        Raises IndexIdInvalid for a generation's name, IndexNotFound, GenerationRefused, and
        IndexReadOnly for an attached index.
        """
        record = await self._fresh(alias, deadline)
        fingerprint = await self._fingerprint(record.generations[0], deadline)
        if other := other_generation(record):
            raise GenerationRefused(
                why=f"{alias} has {other} next to {record.serving}; drop one before the next"
            )
        models = [await each.describe_model(deadline) for each in self._encoders]
        new = [each.fingerprint for each in models if each.fingerprint != fingerprint]
        if not new:
            raise GenerationRefused(
                why=f"{alias} has model {fingerprint} already, and no other is "
                "served: tandem up --next, or ORCHESTRATOR_NEXT_ENCODER_ADDRESS"
            )
        made = Generation(generation_id(alias, record.next_number), new[-1], time.time())
        serving = replace(record.generations[0], fingerprint=fingerprint)
        fresh = replace(
            record, generations=(serving, made), next_number=record.next_number + 1, previous=""
        )
        try:
            await self._book.put(fresh, deadline)
        except NoteChanged:
            raise GenerationRefused(why="another request was faster; list, and try again") from None
        return made

    async def _fingerprint(self, serving: Generation, deadline: Deadline) -> str:
        try:
            return (await self._survey.describe(serving.index_id, deadline)).model_fingerprint
        except IndexNotFound:
            # A generation that had no item when it was promoted is on no shard.
            if not serving.fingerprint:
                raise
            return serving.fingerprint

    async def ask(self, kind: str, index_id: str, why: str, caller: str, deadline: Deadline) -> str:
        """Has the keeper of the alias carry out a request; returns what serves then.

        For a drop, `index_id` is the generation's; otherwise the alias. Raises GenerationRefused.
        """
        alias = alias_of(check_index_id(index_id)) if kind == DROP else index_id
        wanted = None
        while wanted is None:
            record = await self._fresh(alias, deadline)
            target = named_generation(index_id) if kind == DROP else other_generation(record)
            _check(record, kind, target)
            wanted = WantedChange(kind, target, why, caller, time.time())
            try:
                await self._book.put(replace(record, wanted=wanted), deadline)
            except NoteChanged:  # by a heartbeat
                wanted = None
        return await self._outcome(alias, wanted, deadline)

    async def _outcome(self, alias: str, wanted: WantedChange, deadline: Deadline) -> str:
        while deadline.left() > 2 * _POLL_SECONDS:
            await asyncio.sleep(_POLL_SECONDS)
            await self._book.refresh(deadline)
            record = self._book.record(alias)
            if record.wanted == wanted:
                continue
            outcome = record.outcome
            if outcome is None or outcome.asked_time != wanted.asked_time:
                raise GenerationRefused(why="another request followed it; list what serves")
            if outcome.is_refused:
                raise GenerationRefused(why=outcome.text.removeprefix("nothing was changed: "))
            return record.serving
        raise DeadlineExceeded(what=f"the request to {wanted.kind}, which continues; list it")

    async def records(self, alias: str, deadline: Deadline) -> list[AliasRecord]:
        """Returns the record of the alias, or all that there are, by name."""
        if alias:
            return [await self._fresh(alias, deadline)]
        await self._book.begin(deadline)
        await self._book.refresh(deadline)
        return sorted(self._book.records(), key=lambda record: record.alias)

    async def statuses(self, record: AliasRecord, deadline: Deadline) -> list[GenerationStatus]:
        """Returns how far each of the alias's generations is."""
        return [await self._status(record, each, deadline) for each in record.generations]

    async def _status(
        self, record: AliasRecord, generation: Generation, deadline: Deadline
    ) -> GenerationStatus:
        index_id = generation.index_id
        in_time = min(deadline, Deadline.after(_DESCRIBE_SECONDS))
        is_followed = index_id == followed_generation(record)

        async def on(shard: Shard) -> tuple[int, FollowerProgress | None, int]:
            found = await shard.list_indexes("", 1, (index_id,), in_time)
            count = sum(each.text_count + each.image_count for each in found)
            note = await shard.note(WRITER_PREFIX + index_id, in_time)
            progress = FollowerProgress.of(WriterRule.of(note))
            if progress is None or not is_followed:
                return count, None, 0
            page = await shard.changes(0, 1, in_time)
            return count, progress, max(page.sequence - progress.sequence, 0)

        answers = await fan_out(*(answer_or_error(on(e), TandemError) for e in self._shards))
        known = [each for each in answers if not isinstance(each, TandemError)]
        return GenerationStatus(
            generation,
            sum(count for count, _, _ in known),
            [progress for _, progress, _ in known if progress is not None],
            sum(lag for _, _, lag in known),
            is_complete=len(known) == len(answers),
        )

    async def _fresh(self, alias: str, deadline: Deadline) -> AliasRecord:
        """Returns the record as shard 0 has it now; raises shard 0's error."""
        await self._book.begin(deadline)
        await self._book.refresh(deadline)
        return self._book.record(check_alias(alias))


def _check(record: AliasRecord, kind: str, target: str) -> None:
    """Raises GenerationRefused for a request that cannot be about that generation."""
    if not record.has(target):
        raise GenerationRefused(why=f"{record.alias} has no other generation; create one")
    if target == record.serving:
        raise GenerationRefused(why=f"{target} serves; promote another generation first")
    if kind == ROLL_BACK and target != record.previous:
        raise GenerationRefused(why=f"{target} did not serve before; promote it")
    wanted = record.wanted
    if wanted is not None and time.time() < wanted.asked_time + _WAIT_SECONDS:
        raise GenerationRefused(why=f"a request to {wanted.kind} is in progress")
