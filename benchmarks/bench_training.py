"""How fast training goes and what memory it takes, and the same of an export.

    python benchmarks/bench_training.py [--part be] [--repeats 3] [--intervals 3]

Each part is a process of its own, run `--repeats` times:

- backbone: labelling pictures, 64 a step.
- be: bi-encoder steps of 64 pairs, by the recipe `bi_encoder`.
- ce: cross-encoder steps of 128 pairs, by the recipe `cross_encoder`.
- export: the shipped checkpoint into a model repository, in this CPU's best precision.

Model and batches have the default recipe's sizes, on a pool of 128 families. What a step costs does
not hang on the pool; memory does: a family's image tokens take 75 kB, 0.9 GB in the default recipe.
Training reports each tenth step: that interval is the unit timed, and the first is warm-up.
"""

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tandem.model_io.precision import native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.training.recipes import Recipe, bi_encoder, cross_encoder

INTERVAL_STEP_COUNT = 10
POOL_FAMILY_COUNT = 128
FAMILY_SIZE = 4
PARTS = ("backbone", "be", "ce", "export")
NEVER = 1_000_000


def recipe_of(part: str, interval_count: int) -> Recipe:
    """Returns a recipe in which this part alone takes long, at the default sizes."""
    step_count = INTERVAL_STEP_COUNT * (interval_count + 1)
    recipe = replace(
        cross_encoder() if part == "ce" else bi_encoder(),
        pool_family_count=POOL_FAMILY_COUNT,
        dev_family_count=2,
    )
    if part == "backbone":
        return replace(
            recipe, backbone_step_count=step_count, round_count=1, dev_every_round_count=1
        )
    return replace(
        recipe,
        backbone_step_count=1,
        backbone_batch_size=1,
        round_count=step_count,
        dev_every_round_count=step_count,
    )


def rows_of_a_step(part: str, recipe: Recipe) -> int:
    """Returns how many pictures (backbone) or pairs one reported step trains on."""
    if part == "backbone":
        return recipe.backbone_batch_size
    if part == "be":
        return recipe.be_steps_per_round * recipe.be_batch_size
    # Each scene of a family gives a match and a mismatch.
    return recipe.ce_steps_per_round * recipe.ce_family_count * FAMILY_SIZE * 2


def train_part(part: str, interval_count: int) -> dict[str, float]:
    """Returns rows a second, the median of the intervals, and the peak; runs in its process."""
    from tandem.training.train import train

    recipe = recipe_of(part, interval_count)
    stage = "backbone" if part == "backbone" else "encoder"
    time_at: dict[int, float] = {}

    def note_time(of_stage: str, step: int, _step_count: int, _note: str) -> None:
        if of_stage == stage and step % INTERVAL_STEP_COUNT == 0:
            time_at.setdefault(step, time.perf_counter())

    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        train(recipe, Path(folder), note_time, state_every_step_count=NEVER)
    times = [time_at[step] for step in sorted(time_at)]
    seconds = [after - before for before, after in itertools.pairwise(times)]
    assert len(seconds) == interval_count, "training reports other steps now"
    rows = rows_of_a_step(part, recipe) * INTERVAL_STEP_COUNT
    return {"rows_per_second": rows / statistics.median(seconds), "peak_mib": peak_mib()}


def export_part() -> dict[str, float]:
    """Returns the seconds of an export, torch's import left out, and the peak."""
    from tandem.modeling.export import export_model

    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        start_time = time.perf_counter()
        export_model(default_checkpoint(), Path(folder) / "repository", native_precision())
        return {"seconds": time.perf_counter() - start_time, "peak_mib": peak_mib()}


def peak_mib() -> float:
    """Returns the most that this process was resident in; not that of a process it started."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert match, "this kernel tells no VmHWM"
    return int(match[1]) / 1024


def in_a_process(part: str, interval_count: int) -> dict[str, float]:
    """Returns what the part measured, in a process that did nothing before."""
    command = [sys.executable, __file__, "--inside", part, "--intervals", str(interval_count)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return measured


def run(parts: Sequence[str], repeat_count: int, interval_count: int) -> dict[str, object]:
    """Returns the medians over the repeats; the parts take turns."""
    measured: dict[str, list[dict[str, float]]] = {part: [] for part in parts}
    for _ in range(repeat_count):
        for part in parts:
            measured[part].append(in_a_process(part, interval_count))
    return {
        "benchmark": "training",
        "repeats": repeat_count,
        "intervals_of_a_repeat": interval_count,
        "steps_of_an_interval": INTERVAL_STEP_COUNT,
        "cores": os.cpu_count(),
        "export_precision": native_precision(),
        "parts": {
            part: {name: statistics.median(each[name] for each in of_part) for name in of_part[0]}
            for part, of_part in measured.items()
        },
        "of_each_repeat": measured,
    }


def table(result: dict[str, object]) -> str:
    """Returns the figures as Markdown."""
    parts = result["parts"]
    assert isinstance(parts, dict)
    rows = ["| part | speed | peak resident MiB |", "| --- | ---: | ---: |"]
    units = {"backbone": "pictures/s", "be": "pairs/s", "ce": "pairs/s"}
    for part, each in parts.items():
        speed = (
            f"{each['seconds']:.1f} s"
            if part == "export"
            else f"{each['rows_per_second']:.0f} {units[part]}"
        )
        rows.append(f"| {part} | {speed} | {each['peak_mib']:.0f} |")
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table; with --inside, one part's figures as JSON."""
    parser = argparse.ArgumentParser(description="speed and memory of training and of an export")
    parser.add_argument("--part", choices=PARTS, action="append", help="one or more; unset is all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--intervals", type=int, default=3, help="of ten steps, after the warm-up")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside: str = arguments.inside
        figures = export_part() if inside == "export" else train_part(inside, arguments.intervals)
        print(json.dumps(figures))
        return
    result = run(arguments.part or PARTS, arguments.repeats, arguments.intervals)
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
