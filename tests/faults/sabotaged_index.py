"""index_svc with a promise broken on purpose, as proof that the fault tests would see it.

`python -m tests.faults.sabotaged_index`, told by TANDEM_SABOTAGE: `unsynced` commits without
syncing; `early` acknowledges each batch before it is committed, which the next batch does.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import lmdb

from index_svc.__main__ import main
from tandem.corpus.item_store import ItemStore
from tandem.corpus.item_write import Committed, ItemWrite, Upsert
from tandem.errors import TandemError

VARIABLE = "TANDEM_SABOTAGE"


def do_not_sync() -> None:
    """Makes LMDB leave it to the kernel when commits reach the disk."""
    synced = lmdb.open

    def unsynced(path: str, **options: Any) -> lmdb.Environment:  # noqa: ANN401 (LMDB's)
        return synced(path, **{**options, "sync": False})

    lmdb.open = unsynced  # type: ignore[assignment]


def acknowledge_early() -> None:
    """Makes the store say that a batch is committed when it has yet to do it."""
    apply = ItemStore.apply
    held: list[ItemWrite] = []

    def apply_previous(
        store: ItemStore, writes: Sequence[ItemWrite]
    ) -> Sequence[Committed | TandemError]:
        if not store.index_ids():  # the service asks the store what the index is like
            return apply(store, writes)
        apply(store, list(held))
        held[:] = writes
        sequence = store.sequence()
        outcomes = []
        for write in writes:
            count = write.record_count if isinstance(write, Upsert) else 0
            sequence += count
            outcomes.append(Committed(sequence, deleted_count=count))
        return outcomes

    ItemStore.apply = apply_previous  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    {"unsynced": do_not_sync, "early": acknowledge_early}[os.environ[VARIABLE]]()
    asyncio.run(main())
