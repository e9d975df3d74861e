"""Runs index_svc with a change log of 50 changes: `python -m tests.support.move.short_log`."""

import functools
import runpy

from tandem.local.item_store.item_store import ItemStore

if __name__ == "__main__":
    ItemStore.open = functools.partial(ItemStore.open, kept_log_count=50)  # type: ignore[method-assign]
    runpy.run_module("index_svc", run_name="__main__")
