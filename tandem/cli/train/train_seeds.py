"""Trains a recipe, or two, in several seeds, and measures each: `tandem train --seeds N`.

Each run is a process of its own, and `runs.json` in the folder lists their states, so the same
command continues after a kill or a restart of the machine.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import typer

from tandem.cli.evaluate.compare import print_comparison
from tandem.cli.options import arguments_of
from tandem.cli.terminal.console import errors, out
from tandem.cli.train.train_options import SCENES, TrainOptions
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.evaluation.reports.spread import Spread
from tandem.lab.training.runs.run import check_unfinished
from tandem.lab.training.runs.run_manifest import TEST, ListedRun, RunManifest, RunPhase
from tandem.lab.training.runs.run_state import RunStateInvalid
from tandem.platform.child_processes.child_environment import python_command, python_environment
from tandem.platform.child_processes.keeper import ProcessKeeper

_OWN: Final = {"recipe", "seed", "seed_count", "against", "test", "folder", "resume", "overwrite"}
_NOTED_EVERY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class SeedRuns:
    """Describes the runs: which recipes and seeds, where, and how each is measured."""

    recipes: Sequence[str]
    seeds: Sequence[int]
    folder: Path
    options: Sequence[str]
    """Options of `tandem train` that all runs share."""
    test: Sequence[str]
    """Arguments of `tandem evaluate`, the corpus first."""

    @classmethod
    def of(cls, asked: TrainOptions, seed_count: int) -> Self:
        """Returns the runs of a command with --seeds."""
        return cls(
            [name for name in (asked.recipe, asked.against) if name is not None],
            range(asked.seed, asked.seed + seed_count),
            asked.folder,
            arguments_of(asked, but=_OWN),
            [asked.corpus or SCENES, *shlex.split(asked.test)],
        )

    def checkpoint(self, run: ListedRun) -> Path:
        """Returns the folder of a run's checkpoint."""
        return self.folder / f"seed-{run.seed}" / run.recipe

    def report(self, run: ListedRun) -> Path:
        """Returns the folder of a run's report."""
        return self.folder / f"seed-{run.seed}" / f"{run.recipe}-report"

    def manifest(self) -> RunManifest:
        """Returns the list of all runs, a seed of each recipe after the other."""
        settings = {"options": list(self.options), TEST: list(self.test)}
        runs = [ListedRun(recipe, seed) for seed in self.seeds for recipe in self.recipes]
        return RunManifest.opened(self.folder, settings, runs)


def train_seeds(runs: SeedRuns) -> None:
    """Trains and measures the runs that are not done yet, and prints the figures over the seeds.

    Raises typer.Exit with status 1 if a run failed, after all others are done.
    """
    manifest = runs.manifest()
    wanted = [(recipe, seed) for seed in runs.seeds for recipe in runs.recipes]
    for key in wanted:
        if manifest.run(*key).phase is not RunPhase.DONE:
            _make(runs, manifest, manifest.run(*key))
    done = [manifest.run(*key) for key in wanted]
    failed = [each for each in done if each.phase is RunPhase.FAILED]
    if failed:
        names = ", ".join(f"{each.recipe} seed {each.seed}" for each in failed)
        errors.print(f"failed: {names}; the same command tries them again")
        raise typer.Exit(1)
    reports = {
        recipe: [Report.read(runs.report(each)) for each in done if each.recipe == recipe]
        for recipe in runs.recipes
    }
    for recipe, of_seeds in reports.items():
        print_seeds(recipe, of_seeds)
    if len(reports) > 1:
        print_comparison(reports)
    seconds = sum(each.core_seconds for each in done)
    out.print(f"{len(done)} runs, {seconds:,.0f} core-seconds: {manifest.path}")


def print_seeds(name: str, reports: Sequence[Report]) -> None:
    """Prints the mean, deviation and interval over the seeds of each direction and order."""
    heads = ["R@1", "95 % of R@1", "R@5", "R@10", "NDCG@10", "MAP"]
    rows = [["direction", "order by", *heads]]
    for each in reports[0].rankings:
        rankings = [report.ranking(each.direction, each.order_by) for report in reports]
        recalls = [Spread(tuple(one.recalls[n].percent for one in rankings)) for n in range(3)]
        cells = [str(recalls[0]), recalls[0].interval_text, str(recalls[1]), str(recalls[2])]
        ndcg = _percent([one.ndcg for one in rankings])
        precision = _percent([one.mean_average_precision for one in rankings])
        rows.append([each.direction, each.order_by, *cells, ndcg, precision])
    out.print(f"{name}, {len(reports)} seeds: mean ± sample deviation, 95 % interval of the mean")
    out.rows(rows, left=[0, 1])


def _percent(values: Sequence[float | None]) -> str:
    known = tuple(100 * value for value in values if value is not None)
    return str(Spread(known)) if len(known) == len(values) else ""


def _make(runs: SeedRuns, manifest: RunManifest, run: ListedRun) -> None:
    """Trains one run, measures it, and records the outcome."""
    out.print(f"{run.recipe}, seed {run.seed}: {run.phase}")
    if run.phase is not RunPhase.MEASURING and not _is_over(runs.checkpoint(run)):
        run = manifest.change(run, phase=RunPhase.TRAINING)
        arguments = ["train", run.recipe, "--seed", str(run.seed), *runs.options]
        arguments += ["--folder", str(runs.checkpoint(run).parent)]
        if runs.checkpoint(run).is_dir():
            arguments.append("--resume")
        run, status = _finished(arguments, manifest, run)
        if status:
            manifest.change(run, phase=RunPhase.FAILED)
            return
    run = manifest.change(run, phase=RunPhase.MEASURING)
    arguments = ["evaluate", *runs.test, "--checkpoint", str(runs.checkpoint(run))]
    run, status = _finished([*arguments, "--report", str(runs.report(run))], manifest, run)
    if status:
        manifest.change(run, phase=RunPhase.FAILED)
        return
    manifest.change(run, phase=RunPhase.DONE, result=_result(Report.read(runs.report(run))))


def _is_over(folder: Path) -> bool:
    """Returns whether the training in a folder was finished by an earlier try."""
    try:
        check_unfinished(folder)
    except RunStateInvalid:
        return True
    return False


def _finished(
    arguments: Sequence[str], manifest: RunManifest, run: ListedRun
) -> tuple[ListedRun, int]:
    """Runs a command to its end and notes its processor time meanwhile; returns its status.

    The command ends with this process, however that ends: two must never work in one folder.
    """
    before = run.core_seconds
    with ProcessKeeper() as keeper:
        process = subprocess.Popen(
            python_command(["-m", "tandem.cli", *arguments]),
            env=python_environment() | keeper.mark(),
        )
        noted_time = time.monotonic()
        try:
            while True:
                seconds = before + _core_seconds(process.pid)
                try:
                    status = process.wait(0.2)
                except subprocess.TimeoutExpired:
                    if time.monotonic() - noted_time > _NOTED_EVERY_SECONDS:
                        run = manifest.change(run, core_seconds=seconds)
                        noted_time = time.monotonic()
                    continue
                return manifest.change(run, core_seconds=max(seconds, run.core_seconds)), status
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _core_seconds(process_id: int) -> float:
    """Returns the processor time of a process and the children it has waited for; 0 if unknown."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    ticks = map(int, stat.rpartition(")")[2].split()[11:15])
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _result(report: Report) -> dict[str, dict[str, float]]:
    return {
        f"{each.direction}, {each.order_by}": {
            **{f"R@{recall.k}": round(recall.percent, 2) for recall in each.recalls},
            **({"NDCG@10": round(each.ndcg, 4)} if each.ndcg is not None else {}),
        }
        for each in report.rankings
    }
