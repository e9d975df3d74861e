"""Measures what a second generation of an index takes on disk, and what storing items costs.

    python -m benchmarks.bench.contents [--items 2000] [--content-bytes 200000] [--batch 64]
        [--first-holds] [--generations 2] [--work FOLDER]

One process writes pictures of random bytes with 384 values and 49 x 192 tokens into a store, first
as `photos`, then as `photos@2` with other encodings, and deletes both. With `--first-holds` records
of the first generation hold their contents, as in a store of schema 2. It prints JSON: for each
step records a second, CPU seconds, anonymous memory at its peak, how much the store used more and
what its file takes; and the second generation's growth as a multiple of its encodings' bytes. With
`--generations 1` it runs with an earlier release too, to compare what an ingest costs.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tandem.contract.content import Encoding, ImageContent, ImageTokens
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Committed, Delete, ItemWrite, Upsert
from tandem.stages.items import ItemRecord

DIMENSION, TOKENS_SHAPE = 384, (49, 192)
ENCODING_BYTES = 4 * DIMENSION + 2 * TOKENS_SHAPE[0] * TOKENS_SHAPE[1]
GENERATIONS = ("photos", "photos@2")


def main(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Returns the figures of every step."""
    numbers = range(arguments.items)
    starts = range(0, arguments.items, arguments.batch)
    batches = [numbers[start : start + arguments.batch] for start in starts]
    report: dict[str, Any] = vars(arguments) | {"encoding_bytes": ENCODING_BYTES}
    for step, index_id in enumerate(GENERATIONS[: arguments.generations]):
        writes = (
            Upsert(index_id, f"model {step}", [item(each, step, arguments) for each in batch])
            for batch in batches
        )
        with holding_contents() if arguments.first_holds and step == 0 else nullcontext():
            report[index_id] = written(work, writes)
    if arguments.generations == 2:
        grown_bytes = report[GENERATIONS[1]]["grown_bytes"]
        report["ratio"] = round(grown_bytes / ENCODING_BYTES / arguments.items, 3)
    deletes = (
        Delete(index_id, [item_id(each) for each in batch])
        for index_id in GENERATIONS[: arguments.generations]
        for batch in batches
    )
    report["delete"] = written(work, deletes)
    with (
        closing(ItemStore.open(work / "shard", 0, 1)) as store,
        store.env.read() as txn,
        (work / "copy").open("wb") as copy,
    ):
        store.env.copy_compacted(copy.fileno(), txn)
        report["bytes_left_after_deletes"] = copy.tell()
    return report


def item_id(number: int) -> str:
    return f"photograph-{number:06}"


def item(number: int, step: int, arguments: argparse.Namespace) -> ItemRecord:
    """Returns a picture with the encodings of one model."""
    content = np.random.default_rng(number).bytes(arguments.content_bytes)
    draw = np.random.default_rng([number, step])
    vector = draw.standard_normal(DIMENSION).astype(np.float32)
    tokens = ImageTokens(draw.standard_normal(TOKENS_SHAPE).astype(np.float16))
    encoding = Encoding(vector / np.linalg.norm(vector), tokens)
    return ItemRecord(item_id(number), ImageContent(content), encoding)


def written(work: Path, writes: Iterator[ItemWrite]) -> dict[str, Any]:
    """Applies the writes one by one; returns figures of the time in `apply` alone."""
    seconds, cpu_seconds, peak_bytes, count = 0.0, 0.0, 0, 0
    path = work / "shard"
    with closing(ItemStore.open(path, 0, 1)) as store:
        before_bytes = store.env.used_bytes()
        for write in writes:
            start, cpu_start = time.monotonic(), time.process_time()
            outcomes: Sequence[object] = store.apply([write])
            seconds += time.monotonic() - start
            cpu_seconds += time.process_time() - cpu_start
            assert all(isinstance(each, Committed) for each in outcomes), outcomes
            count += write.record_count
            peak_bytes = max(peak_bytes, anonymous_bytes())
        grown_bytes = store.env.used_bytes() - before_bytes
    return {
        "records_a_second": round(count / seconds, 1),
        "cpu_seconds": round(cpu_seconds, 2),
        "cpu_ms_a_record": round(1000 * cpu_seconds / count, 3),
        "peak_anonymous_mb": round(peak_bytes / 1e6, 1),
        "grown_bytes": grown_bytes,
        "disk_bytes": 512 * (path / "data.mdb").stat().st_blocks,
    }


@contextmanager
def holding_contents() -> Iterator[None]:
    """Lets records that are written meanwhile hold their contents, as those of schema 2 did."""
    # Here, because an earlier release has no such module.
    from tandem.local.item_store import item_contents

    with patch.object(item_contents, "APART_BYTES", 1 << 40):
        yield


def anonymous_bytes() -> int:
    [kib] = re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(kib)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--content-bytes", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--generations", type=int, choices=(1, 2), default=2)
    parser.add_argument("--first-holds", action="store_true")
    parser.add_argument("--work")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        print(json.dumps(main(arguments, Path(work)), indent=1))
