"""How long a filter takes over one shard's attributes, and what they take of memory.

    python -m benchmarks.bench.filters [--rows 1000000] [--rounds 9]

Rows have a text of 5 values, an integer of 1,000, a real, a flag, three tags of 500, and a path of
its own in every second row. Each filter is evaluated over all rows, in one thread; the median of
the rounds is reported, in milliseconds of CPU time, so that other work on the machine counts less.
Next to it is the plain reading (`tandem.contract.filters.holds`) of 10,000 rows, scaled to all.
"""

import argparse
import json
import os
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable

from index_svc.attributes.attribute_columns import AttributeColumns
from tandem.contract.attributes import Attributes, AttributeValue
from tandem.contract.filters import AllOf, Exists, Filter, InRange, OneOf, StartsWith, holds

STYLES = ("noto", "twemoji", "noto-v1", "emojione", "fluent-3d")
TAGS = tuple(f"tag{number:03d}" for number in range(500))
_READ_COUNT = 10_000

FILTERS: dict[str, Filter] = {
    "text = x": OneOf("style", ("noto",)),
    "text in (3 values)": OneOf("style", STYLES[:3]),
    "text starts with": StartsWith("style", "noto"),
    "integer = 7": OneOf("count", (7,)),
    "integer in (10 values)": OneOf("count", tuple(range(10))),
    "integer in (1,000 values)": OneOf("count", tuple(range(0, 2000, 2))),
    "integer in (1,000 values far apart)": OneOf("count", tuple(range(0, 10**9, 10**6))),
    "integer in a range": InRange("count", at_least=3, below=500),
    "real in a range": InRange("score", above=0.3, at_most=0.5),
    "flag = true": OneOf("hidden", (True,)),
    "exists": Exists("count"),
    "tags have x": OneOf("tags", TAGS[:1]),
    "tags have one of 3": OneOf("tags", TAGS[:3]),
    "tags have one of 400": OneOf("tags", TAGS[:400]),
    "a tag starts with tag1": StartsWith("tags", "tag1"),
    "path = x, all different": OneOf("path", ("folder/3/picture-00000003.png",)),
    "path starts with folder/3/": StartsWith("path", "folder/3/"),
    "three conditions": OneOf("style", ("noto",))
    & InRange("count", at_least=2)
    & ~OneOf("hidden", (True,)),
    "64 ranges": AllOf(tuple(InRange("count", at_least=number) for number in range(64))),
}


def attributes_of(row: int, choice: random.Random) -> Attributes:
    """Returns what an item of the row has."""
    attributes: dict[str, AttributeValue] = {
        "style": STYLES[choice.randrange(5)],
        "count": choice.randrange(1000),
        "score": choice.random(),
        "hidden": choice.random() < 0.1,
        "tags": tuple(choice.choices(TAGS, k=3)),
    }
    if row % 2:
        attributes["path"] = f"folder/{row % 10}/picture-{row:08d}.png"
    return attributes


def run(row_count: int, round_count: int) -> dict[str, object]:
    """Measures, and prints a table."""
    choice = random.Random(1)
    rows = [attributes_of(row, choice) for row in range(row_count)]
    columns = AttributeColumns()
    put_seconds = timed(lambda: put_all(columns, rows))
    print(f"put: {put_seconds / row_count * 1e6:.1f} us a row\n")
    print("| filter | rows found | CPU ms | CPU ms, plain reading |\n| --- | ---: | ---: | ---: |")
    results: dict[str, dict[str, float]] = {}
    for name, tree in FILTERS.items():
        found_count = int(columns.matching(tree, row_count).sum())
        seconds = [timed(lambda: columns.matching(tree, row_count)) for _ in range(round_count)]  # noqa: B023
        read_seconds = timed(lambda: [holds(tree, row) for row in rows[:_READ_COUNT]])  # noqa: B023
        plain_ms = read_seconds * row_count / min(_READ_COUNT, row_count) * 1e3
        results[name] = {"found": found_count, "ms": statistics.median(seconds) * 1e3}
        results[name]["plain_ms"] = plain_ms
        print(f"| {name} | {found_count:,} | {results[name]['ms']:.2f} | {plain_ms:,.0f} |")
    drop_seconds = timed(lambda: drop_all(columns, row_count))
    return {
        "benchmark": "filters",
        "rows": row_count,
        "cores": os.cpu_count(),
        "put_us": put_seconds / row_count * 1e6,
        "drop_us": drop_seconds / row_count * 1e6,
        "bytes_a_row": bytes_a_row(rows[: row_count // 10]),
        "filters": results,
    }


def put_all(columns: AttributeColumns, rows: list[Attributes]) -> None:
    """Puts them in their order."""
    for row, attributes in enumerate(rows):
        columns.put(row, attributes)


def drop_all(columns: AttributeColumns, row_count: int) -> None:
    """Drops all rows."""
    for row in range(row_count):
        columns.drop(row)


def bytes_a_row(rows: list[Attributes]) -> dict[str, float]:
    """Returns what one attribute takes, by its name, room for growth included."""
    taken = {}
    for name in ("style", "count", "hidden", "tags", "path"):
        tracemalloc.start()
        columns = AttributeColumns()
        put_all(columns, [{name: row[name]} if name in row else {} for row in rows])
        have_count = sum(name in row for row in rows)
        taken[name] = tracemalloc.get_traced_memory()[0] / have_count
        tracemalloc.stop()
    return taken


def timed(work: Callable[[], object]) -> float:
    """Returns the seconds of one core that the work takes, whatever else the machine does."""
    start_time = time.thread_time()
    work()
    return time.thread_time() - start_time


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.rows, arguments.rounds)))
