"""Writes golden sets: judged queries, with the pool that is judged and what each system found.

    golden/pool.json    {"q1": ["a.jpg", ...]}: what to judge, shuffled, so that no place says who
                        found an item; pooling is TREC's (Sparck Jones and van Rijsbergen 1975)
    golden/runs.json    {"ce": {"q1": ["a.jpg", ...]}}, best first; judging does not read it

The other files are those of tandem.corpus.judged_queries.
"""

import errno
import fcntl
import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tandem.corpus.judged_queries import QRELS_NAME, JudgedQuery, qrels_line, write_judged_queries
from tandem.platform.files.private_files import PRIVATE_FOLDER
from tandem.platform.files.whole_file import write_text_whole

POOL_NAME: Final = "pool.json"
RUNS_NAME: Final = "runs.json"

Lists = Mapping[str, Sequence[str]]
"""Item ids by query id."""


def write_golden_set(
    folder: Path,
    queries: Sequence[JudgedQuery],
    runs: Mapping[str, Lists],
    depth: int,
    seed: int,
    about: Mapping[str, Any],
    drawn_count: int | None = None,
) -> dict[str, int]:
    """Writes a new folder, with the queries in a random order; returns its counts.

    `drawn_count`: pools only so many of the queries at which first items differ.
    """
    chance, pool = random.Random(seed), {}
    shuffled = chance.sample(queries, len(queries))
    differing = [
        each
        for each in shuffled
        if len({tuple(run[each.query_id][:1]) for run in runs.values()}) > 1
    ]
    for each in shuffled if drawn_count is None else differing[:drawn_count]:
        found = {item_id for run in runs.values() for item_id in run[each.query_id][:depth]}
        pool[each.query_id] = chance.sample(sorted(found), len(found))
    folder.mkdir(mode=PRIVATE_FOLDER)
    write_text_whole(folder / POOL_NAME, json.dumps(pool))
    write_text_whole(folder / RUNS_NAME, json.dumps(runs))
    counts = {
        "query_count": len(shuffled),
        "differing_count": len(differing),
        "drawn_count": len(pool),
        "pair_count": sum(map(len, pool.values())),
    }
    made = {"systems": [*runs], "depth": depth, "seed": seed, **counts}
    write_judged_queries(folder, shuffled, {**about, **made})
    return counts


class Judgements:
    """Appends judgements to a golden set, alone until it is closed or its process ends."""

    def __init__(self, folder: Path) -> None:
        """Drops a line that a power failure cut; raises ValueError while another process judges."""
        self._file = (folder / QRELS_NAME).open("r+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"another process judges in {folder}; judge a copy of it") from None
        self._file.truncate(self._file.read().rfind(b"\n") + 1)
        self._made: list[tuple[int, tuple[str, str]]] = []

    def add(self, query_id: str, item_id: str, grade: int) -> None:
        """Makes a judgement durable, or raises OSError and leaves the file as it was."""
        start = self._file.seek(0, os.SEEK_END)
        line = qrels_line(query_id, item_id, grade).encode()
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(start)
            raise
        self._made.append((start, (query_id, item_id)))

    def undo(self) -> tuple[str, str]:
        """Takes back the last judgement that was added here, and returns its pair.

        Raises IndexError if there is none.
        """
        start, pair = self._made[-1]
        self._file.truncate(start)
        os.fsync(self._file.fileno())
        self._made.pop()
        return pair

    def close(self) -> None:
        self._file.close()
