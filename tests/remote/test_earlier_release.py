"""A shard of a release before notes serves an orchestrator of this one."""

import pytest

from tandem.contract.deadline import Deadline
from tandem.errors import InternalFault
from tandem.remote.shard import RemoteShard
from tandem.stages.notes import PutNote
from tests.support.chassis.served import served


async def test_a_shard_that_knows_no_notes_has_none() -> None:
    """Any other call that it does not know is a fault."""
    async with served(lambda _: None) as channel:
        shard = RemoteShard(channel, 0)
        assert await shard.notes("", Deadline.after(10)) == ()
        for call in (
            shard.write(PutNote("alias/a", "{}", 0), Deadline.after(10)),
            shard.list_indexes("", 1, (), Deadline.after(10)),
        ):
            with pytest.raises(InternalFault, match="UNIMPLEMENTED"):
                await call
