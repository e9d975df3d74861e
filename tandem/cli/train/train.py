"""Implements `tandem train`: trains a model by a recipe, on scenes or on your own corpus."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from tandem.cli.command_line import report_if_interrupted
from tandem.cli.corpora.corpora import open_corpus, open_divided
from tandem.cli.options import with_options
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.progress import LongWork
from tandem.cli.train.train_options import FINETUNE, SCENES, TrainOptions
from tandem.cli.train.train_seeds import SeedRuns, train_seeds
from tandem.corpus.readable_records import (
    ModelCheck,
    OnError,
    SkippedRecords,
    readable_records,
)
from tandem.corpus.records import Record
from tandem.lab.training.compute import device_named
from tandem.lab.training.processes import (
    Processes,
    torchrun_local_rank,
    torchrun_processes,
)
from tandem.lab.training.recipes.recipe import CooperativeRecipe, MatcherRecipe, Recipe
from tandem.lab.training.runs.loss_curve import plot_run
from tandem.lab.training.runs.run import (
    NOTE_STAGE,
    check_free,
    check_there,
    check_unfinished,
    is_over,
)
from tandem.lab.training.runs.run_state import FILE_NAME
from tandem.lab.training.sources.chosen_captions import FittingCaptions, SpokenCaptions
from tandem.lab.training.sources.record_source import RecordSource
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.train import TrainingSource
from tandem.lab.training.train import train as train_by
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.platform.files.whole_file import check_writable

_UNITS: Final = {
    "encoder": "rounds",
    "zoo": "rounds",
    "backbone": "steps",
    "matcher": "steps",
    "done": "",
}
_HELD_OUT: Final = "or hold a part of it out: --set held_out_family_count=N"


@with_options
def train(asked: TrainOptions) -> None:
    """Train a model by a recipe, and keep the best.

    The best checkpoint is the one of the highest recall on dev.
    """
    chosen = asked.chosen(asked.recipe)
    if asked.seed_count is not None:
        if asked.against is not None:  # Before anything is listed that could not be trained.
            asked.chosen(asked.against)
        train_seeds(SeedRuns.of(asked, asked.seed_count))
        return
    place = device_named(asked.device, torchrun_local_rank())
    if asked.precision is not None:
        chosen = replace(chosen, precision=asked.precision.value)
    is_by_recipe = asked.precision is None and "precision" not in asked.set_fields
    if is_by_recipe and place.type == "cpu" and chosen.precision == Precision.BF16:
        # A CPU may emulate it, several times slower than fp32.
        chosen = replace(chosen, precision=native_precision().value)
    target = asked.folder / asked.recipe
    parts = chosen.parts() if isinstance(chosen, CooperativeRecipe) else {"": chosen}
    runs: dict[Path, Recipe] = {target / name: part for name, part in parts.items()}
    for folder in runs:
        check_writable(folder, "--folder")
        if not asked.resume and not asked.overwrite:
            check_free(folder)
    if asked.resume:
        first, *_, last = *runs, *runs
        check_there(first)
        check_unfinished(last)
        runs = {folder: part for folder, part in runs.items() if not is_over(folder)}
    with torchrun_processes(place) as processes:
        for folder, part in runs.items():
            _train_one(asked, part, folder, place, processes)


def _train_one(
    asked: TrainOptions, chosen: Recipe, target: Path, place: torch.device, processes: Processes
) -> None:
    reading = _Reading(asked)
    source = reading.source(chosen)
    with report_if_interrupted(lambda: _kept(target, chosen)), LongWork() as work:
        if processes.is_first:
            _tell_start(work, chosen, target, str(place), asked.resume)
        done = train_by(
            chosen,
            source,
            target,
            TrainingBar(work).show,
            init=asked.init,
            resume=asked.resume and target.is_dir(),
            device=place,
            processes=processes,
        )
    if processes.is_first:
        for line in reading.lines():
            errors.print(line)
        out.print(f"{target}: dev {done.best}; before: {done.before}")
        if not isinstance(chosen, MatcherRecipe):  # it has no rounds to plot
            out.print(f"losses and recalls over time: {plot_run(target)}")
        is_published_ce = isinstance(chosen, CooperativeRecipe) and not chosen.trains_be
        added = f"BE --cross-encoder {target}" if is_published_ce else target
        out.print(
            f"next: tandem models add {added}; once an index has items, tandem calibrate: until "
            "then its scores are no probabilities"
        )


class _Reading:
    """Reads a corpus' splits for a model and counts what it skips."""

    def __init__(self, asked: TrainOptions) -> None:
        self._asked = asked
        self._skipped = SkippedRecords(goes_on=asked.on_error is OnError.SKIP)
        self._spoken = SpokenCaptions(tuple(asked.language)) if asked.language else None
        self._captions: FittingCaptions | None = None

    def source(self, recipe: Recipe) -> TrainingSource:
        """Returns what the recipe trains on; reads no record yet."""
        asked = self._asked
        if recipe.corpus == SCENES and not (
            asked.recipe == FINETUNE or isinstance(recipe, CooperativeRecipe)
        ):
            return SceneSource()
        records: Sequence[Iterable[Record]]
        if recipe.holds_out:
            corpus = open_corpus(recipe.corpus, "train", asked.seed, asked.count, self._skipped)
            records = [corpus, ()]
        else:
            records = open_divided(
                recipe.corpus,
                ("train", "val"),
                asked.seed,
                (asked.count, None),
                self._skipped,
                otherwise=_HELD_OUT,
            )
        spoken = [self._spoken.of(each) if self._spoken else each for each in records]
        return RecordSource(
            *spoken,
            regions=asked.regions,
            features=asked.features,
            default_features=asked.folder / "features",
            read=self._of,
            skipped=self._skipped,
        )

    def _of(self, records: Iterable[Record], check: ModelCheck) -> Iterable[Record]:
        """Yields the records that the model can read, in order."""
        if self._asked.drop_long_captions:
            self._captions = self._captions or FittingCaptions(check.texts)
            records = self._captions.of(records)
        return readable_records(records, check, self._skipped)

    def lines(self) -> Iterable[str]:
        """Yields lines on what was skipped, or that nothing was."""
        if self._spoken and self._spoken.left_out_count:
            languages = " or ".join(self._spoken.languages)
            yield f"{self._spoken.left_out_count:,} records have no caption in {languages}"
        if self._captions and self._captions.dropped_count:
            whole_count = self._captions.kept_count + self._captions.dropped_count
            yield f"{self._captions.dropped_count:,} of {whole_count:,} captions were too long"
            yield from self._skipped.lines()
        else:
            yield from self._skipped.report()


def _kept(folder: Path, recipe: Recipe) -> str:
    """Returns what an interrupted run leaves and how to continue."""
    if (folder / FILE_NAME).exists():
        return f"{folder} keeps the run up to its last state; --resume continues from there"
    return (
        "there was no state to resume from yet: the first is kept after "
        f"{recipe.dev_every_round_count:,} rounds or a stage before them; run the same command "
        "again, or with --set dev_every_round_count=N for an earlier one"
    )


def _tell_start(
    work: LongWork, recipe: Recipe, folder: Path, device: str, is_resumed: bool
) -> None:
    """Prints what starts, and warns of a CPU without bf16, on which a run is slow."""
    what = f"{recipe.name} on {recipe.corpus}" if recipe.corpus else recipe.name
    goes_on = ", resumed" if is_resumed else ""
    work.say(
        f"trains {what} for {recipe.round_count:,} rounds on {device} in {recipe.precision}, into "
        f"{folder}{goes_on}"
    )
    if device == "cpu" and recipe.precision == Precision.BF16 != native_precision():
        work.say(
            "this CPU emulates bf16, several times slower than fp32; "
            "leave the precision out for fp32, which gives different weights"
        )


class TrainingBar:
    """Shows progress in an open `work`; a run calls `show`."""

    def __init__(self, work: LongWork, clock: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._clock, self._start_seconds = clock, clock()
        self._dev = ""

    def show(self, stage: str, step: int, step_count: int, note: str) -> None:
        """Shows how far a stage is; a note that begins with "dev" stays visible from then on.

        A note of the stage NOTE_STAGE is a line of its own.
        """
        if stage == NOTE_STAGE:
            self._work.say(note)
            return
        shown = ", ".join(filter(None, [note, self._dev]))
        if note.startswith("dev "):
            self._dev = shown = note
            elapsed_seconds = self._clock() - self._start_seconds
            self._work.say(f"{elapsed_seconds:8.0f} s  {stage} step {step:,}: {note}")
        unit = _UNITS.get(stage, "pictures")
        self._work.show(stage, step, step_count, unit=unit, note=shown)
