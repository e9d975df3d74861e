"""Implements `tandem train`: trains a model by a recipe, on scenes or on your own corpus."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from tandem.cli.command_line import report_if_interrupted
from tandem.cli.corpora.corpora import open_corpus, open_divided
from tandem.cli.options import MAX_SEED, MAX_SEED_COUNT
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.progress import LongWork
from tandem.cli.train.train_options import FINETUNE, SCENES, TrainOptions
from tandem.cli.train.train_seeds import SeedRuns, evaluate_arguments, shared_options, train_seeds
from tandem.cli.train.training_bar import TrainingBar
from tandem.corpus.readable_records import (
    OnError,
    SkippedRecords,
    TextCheck,
    readable_records,
)
from tandem.corpus.records import Record
from tandem.repository.precision import Precision, native_precision
from tandem.training.compute import device_named
from tandem.training.processes import torchrun_local_rank, torchrun_processes
from tandem.training.recipes.named_recipes import RECIPES
from tandem.training.recipes.recipe import MatcherRecipe, Recipe
from tandem.training.recipes.recipe_settings import with_settings
from tandem.training.runs.curve_plot import plot_run
from tandem.training.runs.run import check_free, check_there, check_unfinished, check_writable
from tandem.training.runs.run_state import FILE_NAME
from tandem.training.sources.fitting_captions import FittingCaptions
from tandem.training.sources.record_source import RecordSource
from tandem.training.sources.scene_source import SceneSource
from tandem.training.sources.source import TrainingSource
from tandem.training.sources.spoken_captions import SpokenCaptions
from tandem.training.train import train as train_by

_HELD_OUT: Final = "or hold a part of it out: --set held_out_family_count=N"


def train(
    context: typer.Context,
    recipe: Annotated[
        str,
        typer.Argument(help=f"one of {', '.join(sorted(RECIPES))}, or {FINETUNE} with --corpus"),
    ],
    folder: Annotated[Path, typer.Option(help="folder for the checkpoint")] = Path("checkpoints"),
    seed: Annotated[int, typer.Option(help="random seed", min=0, max=MAX_SEED)] = 1,
    seed_count: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            max=MAX_SEED_COUNT,
            help="train this many seeds from --seed on, evaluate each, and print mean, deviation "
            "and interval; the same command continues after a stop",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="with --seeds: another recipe, trained and measured alike and compared"),
    ] = None,
    test: Annotated[
        str,
        typer.Option(help="with --seeds: arguments of tandem evaluate, which the corpus precedes"),
    ] = "--split test",
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:n; by default cuda if available, else cpu")
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(
            "--from", help="folder or hub name of a BERT, MiniLM, RoBERTa or XLM-R to start from"
        ),
    ] = None,
    image_source: Annotated[
        str | None,
        typer.Option(
            help="source of image tokens: grid, patches, efficientnet_lite0, regions, or the "
            "folder or hub name of a ViT, CLIP, SigLIP, DINOv2, ConvNeXt or ResNet; by default the "
            "recipe's"
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="bf16 or fp32, for matrix products; by default the recipe's, or fp32 where a CPU "
            "would emulate bf16"
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="resume a stopped run")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace another run in the folder")
    ] = False,
    corpus: Annotated[
        str | None, typer.Option(help="corpus to train on: emoji or a path; by default scenes")
    ] = None,
    regions: Annotated[
        Path | None, typer.Option(help="with --corpus: file of regions to read instead of pixels")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            help="with --corpus: folder where image tokens of a frozen network are kept for later "
            "runs; by default features in --folder"
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            help=f"checkpoint to start from: for {FINETUNE} and cross_encoder_after_be, by default "
            "the "
            "bundled one; joint_matcher needs one; with --corpus for any other recipe, by default "
            "none"
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="with --corpus: number of rounds; by default the recipe's", min=1),
    ] = None,
    backbone_steps: Annotated[
        int | None,
        typer.Option(
            help="with --corpus: steps that train the image backbone before the rounds; by default "
            "the "
            "recipe's, and 0 when starting from a checkpoint",
            min=0,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(help="with --corpus: number of training records; by default all", min=1),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            help="with --corpus: language of the captions to read; repeatable; by default all"
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="change a field of the recipe; repeatable"
        ),
    ] = None,
    drop_long_captions: Annotated[
        bool,
        typer.Option("--drop-long-captions", help="with --corpus: drop too long captions"),
    ] = False,
    on_error: Annotated[
        OnError | None,
        typer.Option(
            help="with --corpus: stop at a record that cannot be read (default), or skip it"
        ),
    ] = None,
) -> None:
    """Train a model by a recipe, and keep the best.

    The best checkpoint is the one of the highest recall on dev.
    """
    options = TrainOptions(
        corpus=corpus,
        regions=regions,
        features=features,
        init=init,
        rounds=rounds,
        backbone_steps=backbone_steps,
        pretrained=pretrained,
        image_source=image_source,
        language=",".join(language) if language else None,
        count=count,
        drop_long_captions=drop_long_captions or None,
        on_error=on_error,
    )
    options.check_unset(settings or (), precision and precision.value)
    chosen = with_settings(options.chosen(recipe, seed), settings or ())
    if seed_count is not None:
        if resume or overwrite:
            raise ValueError("--seeds continues by itself: leave out --resume and --overwrite")
        if against == recipe:
            raise ValueError(f"--against {against} is the recipe itself: name another")
        if seed + seed_count - 1 > MAX_SEED:
            raise ValueError(f"--seeds {seed_count} from --seed {seed} on end above {MAX_SEED:,}")
        if against is not None:  # Before anything is listed that could not be trained.
            with_settings(options.chosen(against, seed), settings or ())
        recipes = tuple(dict.fromkeys(filter(None, (recipe, against))))
        seeds, tested = range(seed, seed + seed_count), evaluate_arguments(corpus, test)
        train_seeds(SeedRuns(recipes, seeds, folder, shared_options(context), tested))
        return
    if against is not None:
        raise ValueError("--against compares recipes over several seeds: give --seeds as well")
    target, place = folder / recipe, device_named(device, torchrun_local_rank())
    if precision is not None:
        chosen = replace(chosen, precision=precision.value)
    elif not any(each.startswith("precision=") for each in settings or ()):
        chosen = _in_native_precision(chosen, place.type)
    if resume and overwrite:
        raise ValueError("--resume continues a run and --overwrite replaces it; give one of them")
    check_writable(target)
    if resume:
        check_there(target)
        check_unfinished(target)
    elif not overwrite:
        check_free(target)
    reading = _Reading(
        on_error or OnError.STOP,
        drop_long_captions,
        spoken=SpokenCaptions(tuple(language)) if language else None,
    )
    source: TrainingSource
    if chosen.corpus == SCENES and recipe != FINETUNE:
        source = SceneSource()
    else:
        reading.skipped.goes_on = on_error is OnError.SKIP
        records: Sequence[Iterable[Record]]
        if chosen.holds_out:
            records = [open_corpus(chosen.corpus, "train", seed, count, reading.skipped), ()]
        else:
            splits = ("train", "val")
            records = open_divided(
                chosen.corpus, splits, seed, (count, None), reading.skipped, otherwise=_HELD_OUT
            )
        spoken = [reading.spoken.of(each) if reading.spoken else each for each in records]
        source = RecordSource(
            *spoken,
            regions=regions,
            features=features,
            default_features=folder / "features",
            read=reading.of,
            skipped=reading.skipped,
        )
    with (
        report_if_interrupted(lambda: _kept(target, chosen)),
        torchrun_processes(place) as processes,
        LongWork() as work,
    ):
        if processes.is_first:
            _tell_start(work, chosen, target, str(place), resume)
        done = train_by(
            chosen,
            source,
            target,
            TrainingBar(work).show,
            init=init,
            resume=resume,
            device=place,
            processes=processes,
        )
    if processes.is_first:
        for line in reading.lines():
            errors.print(line)
        out.print(f"{target}: dev {done.best}; before: {done.before}")
        if not isinstance(chosen, MatcherRecipe):  # it has no rounds to plot
            out.print(f"losses and recalls over time: {plot_run(target)}")


@dataclass(slots=True)
class _Reading:
    """Reads a corpus' splits for a model and counts what it skips."""

    on_error: OnError
    drops_long_captions: bool
    skipped: SkippedRecords = field(default_factory=SkippedRecords)
    captions: FittingCaptions | None = None
    spoken: SpokenCaptions | None = None

    def of(self, records: Iterable[Record], check: TextCheck) -> Iterable[Record]:
        """Yields the records that the model can read, in order."""
        if self.drops_long_captions:
            self.captions = self.captions or FittingCaptions(check.texts)
            records = self.captions.of(records)
        return readable_records(records, check, self.on_error, self.skipped)

    def lines(self) -> Iterable[str]:
        """Yields lines on what was skipped, or that nothing was."""
        if self.spoken and self.spoken.left_out_count:
            languages = " or ".join(self.spoken.languages)
            yield f"{self.spoken.left_out_count:,} records have no caption in {languages}"
        if self.captions and self.captions.dropped_count:
            whole_count = self.captions.kept_count + self.captions.dropped_count
            yield f"{self.captions.dropped_count:,} of {whole_count:,} captions were too long"
            yield from self.skipped.lines()
        else:
            yield from self.skipped.report()


def _in_native_precision(recipe: Recipe, device: str) -> Recipe:
    """Returns the recipe in fp32 where a CPU would emulate its bf16."""
    if device == "cpu" and recipe.precision == Precision.BF16:
        return replace(recipe, precision=native_precision().value)
    return recipe


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
