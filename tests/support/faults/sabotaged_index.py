"""Runs index_svc with a promise broken on purpose, to show that the fault tests notice.

`python -m tests.support.faults.sabotaged_index` reads TANDEM_SABOTAGE: `unsynced` commits without
syncing; `early` acknowledges each batch before it is committed, which the next batch does; `deaf`
ignores failed commits; `forgetful` keeps no request ids.
"""

import asyncio
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import lmdb

from index_svc.__main__ import main
from tandem.errors import TandemError
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Committed, ItemWrite, Upsert

_VARIABLE = "TANDEM_SABOTAGE"


def sabotaged(sabotage: str) -> dict[str, Any]:
    """Returns the options that make a ShardProcess run with the sabotage."""
    return {"module": __name__, "environment": {_VARIABLE: sabotage}}


def do_not_sync() -> None:
    """Makes LMDB leave it to the kernel when commits reach the disk."""
    synced = lmdb.open

    def unsynced(path: str, **options: Any) -> lmdb.Environment:
        return synced(path, **{**options, "sync": False})

    lmdb.open = unsynced  # type: ignore[assignment]


def acknowledge_early() -> None:
    """Makes the store report a batch as committed before it is."""
    apply = ItemStore.apply
    held: list[ItemWrite] = []

    def apply_previous(
        store: ItemStore, writes: Sequence[ItemWrite]
    ) -> Sequence[Committed | TandemError]:
        if not store.index_ids():  # the service asks the store what the index is like
            return apply(store, writes)
        apply(store, list(held))
        held[:] = writes
        return _as_if_committed(writes, store.sequence())

    ItemStore.apply = apply_previous  # type: ignore[assignment, method-assign]


def hear_no_errors() -> None:
    """Makes the store report a batch as committed even if the disk failed."""
    apply = ItemStore.apply
    sequence = 0

    def apply_deaf(
        store: ItemStore, writes: Sequence[ItemWrite]
    ) -> Sequence[Committed | TandemError]:
        nonlocal sequence
        try:
            outcomes = apply(store, writes)
        except Exception:
            outcomes = _as_if_committed(writes, sequence)
        sequence = max(o.sequence for o in outcomes if isinstance(o, Committed))
        return outcomes

    ItemStore.apply = apply_deaf  # type: ignore[assignment, method-assign]


def forget_requests() -> None:
    """Makes the store treat every request as new."""
    apply = ItemStore.apply

    def apply_anew(
        store: ItemStore, writes: Sequence[ItemWrite]
    ) -> Sequence[Committed | TandemError]:
        return apply(store, [dataclasses.replace(write, request_id="") for write in writes])

    ItemStore.apply = apply_anew  # type: ignore[assignment, method-assign]


def _as_if_committed(writes: Sequence[ItemWrite], sequence: int) -> list[Committed | TandemError]:
    outcomes: list[Committed | TandemError] = []
    for write in writes:
        count = write.record_count if isinstance(write, Upsert) else 0
        sequence += count
        outcomes.append(Committed(sequence, deleted_count=count))
    return outcomes


_SABOTAGES = {
    "unsynced": do_not_sync,
    "early": acknowledge_early,
    "deaf": hear_no_errors,
    "forgetful": forget_requests,
}

if __name__ == "__main__":
    _SABOTAGES[os.environ[_VARIABLE]]()
    asyncio.run(main())
