"""How long `tandem.Engine` takes to open a folder with many pictures.

    python -m benchmarks.bench.engine_opening [--items 10000] [--shards 1] [--times 5]

Fills a folder of the shipped model's size with random pictures and encodings, with a snapshot, as a
folder has that was open for a while. Then new processes open it: the time of the call with `tandem`
imported, that of `from tandem import Engine`, and that from the start of `python -c`. Processor
time is of the opening process until the call returns and of the children that it waits for; another
load on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from index_svc.shard import Shard
from orchestrator_svc.shard_map import ShardMap
from tandem.contract.content import Encoding, ImageContent, ImageTokens
from tandem.item_store.item_record import ItemRecord
from tandem.item_store.item_store import ItemStore
from tandem.item_store.item_write import Upsert
from tandem.model_io.manifest import Manifest
from tandem.model_io.precision import native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model

_INDEX = "bench"
_BATCH_COUNT = 500
_PICTURE_BYTES = 15_000

_OPEN = """
import json, resource, sys, time
start, own = time.perf_counter(), time.process_time()
from tandem import Engine
imported, imported_own = time.perf_counter(), time.process_time()
engine = Engine(sys.argv[1], model=sys.argv[2])
opened, opened_own, opened_at = time.perf_counter(), time.process_time(), time.monotonic()
children = resource.getrusage(resource.RUSAGE_CHILDREN)
assert engine.describe_index(index_id=sys.argv[3]).shards
engine.close()
print(json.dumps({
    "open_s": opened - imported,
    "import_s": imported - start,
    "opened_at_s": opened_at,
    "open_cpu_s": opened_own - imported_own + children.ru_utime + children.ru_stime,
    "import_cpu_s": imported_own - own,
}))
"""


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the whole result."""
    with tempfile.TemporaryDirectory() as folder:
        repository, data = Path(folder) / "model_repository", Path(folder) / "data"
        manifest = export_model(default_checkpoint(), repository, native_precision())
        for number in range(arguments.shards):
            _fill(data / f"shard-{number}", number, arguments, manifest)
        opened = [_opened(data, repository) for _ in range(arguments.times + 1)]
    return {
        "benchmark": "engine_opening",
        "items": arguments.items,
        "shards": arguments.shards,
        "load_average": os.getloadavg()[0],
        # The first reads files that are not in memory yet.
        "figures": {name: [each[name] for each in opened[1:]] for name in opened[0]},
    }


def _fill(folder: Path, number: int, arguments: argparse.Namespace, manifest: Manifest) -> None:
    """Writes a shard's part of the items, and a snapshot of it."""
    folder.mkdir(parents=True)
    shard_map, rng = ShardMap(arguments.shards), np.random.default_rng(number)
    names = [f"item-{place}" for place in range(arguments.items)]
    own = [each for each in names if shard_map.owner(_INDEX, each) == number]
    store = ItemStore.open(folder, number, arguments.shards)
    shard = Shard(store, folder)
    shard.load()
    for start in range(0, len(own), _BATCH_COUNT):
        items = [_item(each, rng, manifest) for each in own[start : start + _BATCH_COUNT]]
        shard.write(Upsert(_INDEX, manifest.fingerprint, items)).result()
    # Or both would write the same snapshot, which is due after so many changes.
    shard.maintenance.stop()
    shard.maintenance.snapshots.write(_INDEX, shard.index(_INDEX))
    shard.close()
    store.close()


def _item(item_id: str, rng: np.random.Generator, manifest: Manifest) -> ItemRecord:
    embedding_D = rng.standard_normal(manifest.embedding_dim).astype(np.float32)
    tokens_RD = rng.standard_normal((manifest.image_token_count, manifest.token_width))
    return ItemRecord(
        item_id,
        ImageContent(rng.bytes(_PICTURE_BYTES)),
        Encoding(
            embedding_D / np.linalg.norm(embedding_D), ImageTokens(tokens_RD.astype(np.float16))
        ),
    )


def _opened(data: Path, repository: Path) -> dict[str, float]:
    start = time.monotonic()  # the same clock in both processes
    ran = subprocess.run(
        [sys.executable, "-c", _OPEN, str(data), str(repository), _INDEX],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told: dict[str, float] = json.loads(ran.stdout)
    return told | {"python_c_s": told.pop("opened_at_s") - start}


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    figures = result["figures"]
    assert isinstance(figures, dict)
    names = {
        "open_s": "`Engine(folder)`",
        "import_s": "`from tandem import Engine`",
        "python_c_s": "`python -c` from its start until the engine is open",
        "open_cpu_s": "`Engine(folder)`, processor time with its children",
        "import_cpu_s": "`from tandem import Engine`, processor time",
    }
    rows = ["| what | median s | least s |", "| --- | ---: | ---: |"]
    for name, words in names.items():
        median = statistics.median(figures[name])
        rows.append(f"| {words} | {median:.2f} | {min(figures[name]):.2f} |")
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table."""
    parser = argparse.ArgumentParser(description="the opening of an engine's folder")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--times", type=int, default=5)
    result = run(parser.parse_args())
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
