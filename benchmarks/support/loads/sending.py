"""Starts a `steady_load.py` next to what is measured, and reads what it saw."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

UNTIL_TOLD_SECONDS = 1e6


class Sending:
    """A load in progress."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.seen: dict[str, Any] = {}
        """What it saw; empty until it has ended."""

    def end(self) -> None:
        """Ends the load, and waits for the searches in progress."""
        self._process.terminate()
        assert self._process.stdout
        printed = self._process.stdout.read()
        if self._process.wait():
            raise RuntimeError("the sender of the load failed; its traceback is above")
        self.seen = json.loads(printed)


@contextmanager
def sending(
    address: str, index_id: str, texts: Sequence[str], rate: float, *options: str
) -> Iterator[Sending]:
    """Sends searches at a rate while entered; `options` are further ones of steady_load.py."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.support.loads.steady_load", address, index_id),
            *("--rate", str(rate), "--seconds", str(UNTIL_TOLD_SECONDS), *options),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours to answer
    )
    assert process.stdin
    process.stdin.write("\n".join(texts))
    process.stdin.close()
    load = Sending(process)
    try:
        yield load
    finally:
        load.end()
