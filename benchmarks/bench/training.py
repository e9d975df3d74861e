"""How fast training goes and what memory it takes, and the same of an export.

    python -m benchmarks.bench.training [--part be] [--repeats 3] [--intervals 3] [--families 128]

Each part is a process of its own, run `--repeats` times:

- backbone: labelling pictures, 64 a step.
- be: bi-encoder steps of 64 pairs, by the recipe `bi_encoder` without its masked words.
- ce: cross-encoder steps of 128 pairs, by the recipe `cross_encoder` without its masked words.
- round: whole rounds of `default`, its steps of masked words too; a row is a pair of any step.
- export: the shipped checkpoint into a model repository, in this CPU's best precision.

Model and batches have the default recipe's sizes, on a pool of `--families`. A step's cost does
not depend on the pool; memory does: a family's image tokens take 75 kB. The default recipe has
12,000 families, whose tokens take minutes to compute before the first step.
Training reports each tenth step: that interval is the unit timed, and the first is warm-up.
CPU time says more than the clock where other work shares the cores, though threads that wait for
one another count in it.
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

from tandem.lab.training.recipes.named_recipes import bi_encoder, cross_encoder, default
from tandem.lab.training.recipes.recipe import JointRecipe
from tandem.model_io.repository.precision import native_precision
from tandem.modeling.default_checkpoint import default_checkpoint

INTERVAL_STEP_COUNT = 10
FAMILY_SIZE = 4
PARTS = ("backbone", "be", "ce", "round", "export")
NEVER = 1_000_000


def recipe_of(part: str, interval_count: int, family_count: int) -> JointRecipe:
    """Returns a recipe in which this part alone takes long, at the default sizes."""
    step_count = INTERVAL_STEP_COUNT * (interval_count + 1)
    if part == "round":
        recipe = default()
    else:
        recipe = replace(cross_encoder() if part == "ce" else bi_encoder(), mlm_steps_per_round=0)
    recipe = replace(recipe, pool_family_count=family_count, dev_family_count=2)
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


def rows_of_a_step(part: str, recipe: JointRecipe) -> int:
    """Returns how many pictures (backbone) or pairs one reported step trains on."""
    if part == "backbone":
        return recipe.backbone_batch_size
    return (
        recipe.be_steps_per_round * recipe.be_batch_size
        + recipe.mlm_steps_per_round * recipe.mlm_batch_size
        # Each scene of a family gives a match and a mismatch.
        + recipe.ce_steps_per_round * recipe.ce_family_count * FAMILY_SIZE * 2
    )


def train_part(part: str, interval_count: int, family_count: int) -> dict[str, float]:
    """Returns rows a second, the median of the intervals, and the peak; runs in its process."""
    from tandem.lab.training.sources.scene_source import SceneSource
    from tandem.lab.training.train import train

    recipe = recipe_of(part, interval_count, family_count)
    stage = "backbone" if part == "backbone" else "encoder"
    times_at: dict[int, tuple[float, float]] = {}

    def note_times(of_stage: str, step: int, _step_count: int, _note: str) -> None:
        if of_stage == stage and step % INTERVAL_STEP_COUNT == 0:
            times_at.setdefault(step, (time.perf_counter(), time.process_time()))

    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        train(recipe, SceneSource(), Path(folder), note_times, state_every_step_count=NEVER)
    pairs = list(itertools.pairwise(times_at[step] for step in sorted(times_at)))
    assert len(pairs) == interval_count, "training reports other steps now"
    rows = rows_of_a_step(part, recipe) * INTERVAL_STEP_COUNT
    wall_seconds, cpu_seconds = (
        statistics.median(after[clock] - before[clock] for before, after in pairs)
        for clock in (0, 1)
    )
    return {
        "rows_per_second": rows / wall_seconds,
        "rows_per_cpu_second": rows / cpu_seconds,
        "peak_mib": peak_mib(),
    }


def export_part() -> dict[str, float]:
    """Returns the seconds of an export, torch's import left out, and the peak."""
    from tandem.modeling.export.export import export_model

    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        start_time, start_cpu_time = time.perf_counter(), time.process_time()
        export_model(default_checkpoint(), Path(folder) / "repository", native_precision())
        return {
            "seconds": time.perf_counter() - start_time,
            "cpu_seconds": time.process_time() - start_cpu_time,
            "peak_mib": peak_mib(),
        }


def peak_mib() -> float:
    """Returns the most that this process was resident in; not that of a process it started."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert match, "this kernel tells no VmHWM"
    return int(match[1]) / 1024


def in_a_process(part: str, interval_count: int, family_count: int) -> dict[str, float]:
    """Returns what the part measured, in a process that did nothing before."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench.training",
        "--inside",
        part,
        "--intervals",
        str(interval_count),
    ]
    command += ["--families", str(family_count)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    # At once: a run of all parts takes long, and what it measured before it broke off is true.
    print(part, json.dumps(measured), file=sys.stderr, flush=True)
    return measured


def run(
    parts: Sequence[str], repeat_count: int, interval_count: int, family_count: int
) -> dict[str, object]:
    """Returns the medians over the repeats; the parts take turns."""
    measured: dict[str, list[dict[str, float]]] = {part: [] for part in parts}
    for _ in range(repeat_count):
        for part in parts:
            measured[part].append(in_a_process(part, interval_count, family_count))
    return {
        "benchmark": "training",
        "repeats": repeat_count,
        "intervals_of_a_repeat": interval_count,
        "steps_of_an_interval": INTERVAL_STEP_COUNT,
        "families": family_count,
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
    rows = [
        "| part | by the clock | by CPU time | peak resident MiB |",
        "| --- | ---: | ---: | ---: |",
    ]
    units = {"backbone": "pictures", "be": "pairs", "ce": "pairs", "round": "pairs"}
    for part, each in parts.items():
        if part == "export":
            cells = f"{each['seconds']:.1f} s | {each['cpu_seconds']:.1f} s"
        else:
            unit = units[part]
            cells = (
                f"{each['rows_per_second']:.0f} {unit}/s "
                f"| {each['rows_per_cpu_second']:.0f} {unit}/s"
            )
        rows.append(f"| {part} | {cells} | {each['peak_mib']:.0f} |")
    return "\n".join(rows)


def main() -> None:
    """Prints one JSON line, then a table; with --inside, one part's figures as JSON."""
    parser = argparse.ArgumentParser(description="speed and memory of training and of an export")
    parser.add_argument("--part", choices=PARTS, action="append", help="one or more; unset is all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--intervals", type=int, default=3, help="of ten steps, after the warm-up")
    parser.add_argument("--families", type=int, default=128, help="in the pool")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside: str = arguments.inside
        figures = (
            export_part()
            if inside == "export"
            else train_part(inside, arguments.intervals, arguments.families)
        )
        print(json.dumps(figures))
        return
    result = run(
        arguments.part or PARTS, arguments.repeats, arguments.intervals, arguments.families
    )
    print(json.dumps(result))
    print(table(result))


if __name__ == "__main__":
    main()
