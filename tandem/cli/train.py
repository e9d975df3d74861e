"""`tandem train`: a recipe into a checkpoint, or a checkpoint and a corpus into another."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.console import errors, out
from tandem.cli.corpora import open_corpus
from tandem.cli.training_bar import TrainingBar
from tandem.model_io.precision import Precision, native_precision
from tandem.model_io.readable_records import (
    ModelCheck,
    OnError,
    SkippedRecords,
    readable_records,
)
from tandem.model_io.text import TextPreprocessor
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import ImageSource
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.training.recipes import RECIPES, Recipe, finetune, recipe_named

FINETUNE = "finetune"
_FINETUNE_ROUND_COUNT = 300


def train(
    recipe: Annotated[
        str,
        typer.Argument(help=f"one of {', '.join(sorted(RECIPES))}, or {FINETUNE} with --corpus"),
    ],
    folder: Annotated[Path, typer.Option(help="where the checkpoint goes")] = Path("checkpoints"),
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:n; cuda where there is one, else cpu")
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(help="folder or hub name of a BERT, MiniLM, RoBERTa or XLM-R to begin from"),
    ] = None,
    image_source: Annotated[
        ImageSource | None, typer.Option(help="of image tokens; unset is the recipe's")
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="bf16 or fp32, of products of matrices; unset is the recipe's"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with a run that stopped")] = False,
    corpus: Annotated[
        str | None, typer.Option(help=f"what {FINETUNE} trains on: scenes, emoji or a path")
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            help=f"the checkpoint that {FINETUNE}, apart or a CE after a BE begins with; "
            "else the shipped"
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help=f"of {FINETUNE} or apart; unset is the recipe's")
    ] = None,
    backbone_steps: Annotated[
        int | None,
        typer.Option(
            help=f"in which the image backbone learns the corpus, before {FINETUNE}'s rounds; "
            "else it stays as it is",
            min=0,
        ),
    ] = None,
    apart_layers: Annotated[
        int | None, typer.Option(help="lower layers that apart takes apart", min=0)
    ] = None,
    count: Annotated[
        int | None, typer.Option(help=f"of training records of {FINETUNE}; else all")
    ] = None,
    drop_long_captions: Annotated[
        bool, typer.Option("--drop-long-captions", help=f"go on without those, in {FINETUNE}")
    ] = False,
    on_error: Annotated[
        OnError | None,
        typer.Option(
            help=f"a record that cannot be read: {FINETUNE} stops at it unless told to skip"
        ),
    ] = None,
) -> None:
    """Trains a model by a recipe; the best checkpoint by dev recall is kept."""
    # Here: torch and matplotlib take seconds, which no other command need wait.
    from tandem.training.compute import device_named
    from tandem.training.curve_plot import plot_run
    from tandem.training.finetune import finetune as run_finetuning
    from tandem.training.fitting_captions import FittingCaptions
    from tandem.training.processes import torchrun_local_rank, torchrun_processes
    from tandem.training.run import check_unfinished
    from tandem.training.train import train as run_training

    target, place = folder / recipe, device_named(device, torchrun_local_rank())
    if recipe != FINETUNE:
        chosen = recipe_named(recipe, seed)
        ignored = {
            "corpus": corpus,
            "init": init,
            "rounds": rounds,
            "backbone-steps": backbone_steps,
            "apart-layers": apart_layers,
            "count": count,
            "on-error": on_error,
            "drop-long-captions": drop_long_captions or None,
        }
        if chosen.begins_trained or chosen.begins_with_backbone:
            del ignored["init"]
            ignored["image-source"] = image_source
        if chosen.begins_trained:
            for name in ("rounds", "apart-layers"):
                del ignored[name]
            ignored["pretrained"] = pretrained
            chosen = replace(
                chosen,
                round_count=chosen.round_count if rounds is None else rounds,
                apart_layer_count=chosen.apart_layer_count
                if apart_layers is None
                else apart_layers,
            )
        if given := _given(ignored):
            raise ValueError(
                f"{given} would be ignored: recipe {recipe} says it all; "
                f"leave it out, or train {FINETUNE}"
            )
        if pretrained is not None:
            chosen = replace(chosen, pretrained=pretrained)
        if image_source is not None:
            chosen = replace(chosen, image_source=image_source)
        chosen = _in_precision(chosen, precision)
        if resume:
            check_unfinished(target)
        with torchrun_processes(place) as processes, TrainingBar(out) as bar:
            if processes.is_first:
                _warn_of_emulation(chosen, place.type)
            recall = run_training(
                chosen,
                target,
                bar.show,
                init=init,
                resume=resume,
                device=place,
                processes=processes,
            )
        if processes.is_first:
            out.print(f"{target}: dev {recall}")
            out.print(f"losses and recalls over time: {plot_run(target)}")
        return
    if given := _given(
        {"pretrained": pretrained, "image-source": image_source, "apart-layers": apart_layers}
    ):
        raise ValueError(
            f"{given} would be ignored: {FINETUNE} has its encoder and image source from --init; "
            "leave it out, or train a recipe"
        )
    if corpus is None:
        raise ValueError(f"{FINETUNE} needs --corpus: scenes, emoji or a path")
    if resume:
        check_unfinished(target)
    beginning = init or default_checkpoint()
    records = open_corpus(corpus, "train", seed, count), open_corpus(corpus, "val", seed, None)
    check = _model_check(beginning)
    captions, skipped = FittingCaptions(check.texts), SkippedRecords()
    fitting = map(captions.of, records) if drop_long_captions else records
    train_records, dev_records = (
        readable_records(each, check, on_error or OnError.STOP, skipped) for each in fitting
    )
    round_count = _FINETUNE_ROUND_COUNT if rounds is None else rounds
    chosen = finetune(corpus, round_count, seed, backbone_steps or 0)
    chosen = _in_precision(chosen, precision)
    with torchrun_processes(place) as processes, TrainingBar(out) as bar:
        if processes.is_first:
            _warn_of_emulation(chosen, place.type)
        done = run_finetuning(
            chosen,
            beginning,
            train_records,
            dev_records,
            target,
            bar.show,
            resume=resume,
            device=place,
            processes=processes,
            skipped=skipped,
        )
    if processes.is_first:
        for line in skipped.lines():
            errors.print(line, markup=False, highlight=False)
        if captions.dropped_count:
            whole_count = captions.kept_count + captions.dropped_count
            out.print(f"{captions.dropped_count:,} of {whole_count:,} captions were too long")
        out.print(f"{target}: dev {done.best}; before: {done.before}")
        out.print(f"losses and recalls over time: {plot_run(target)}")


def _in_precision(recipe: Recipe, precision: Precision | None) -> Recipe:
    return recipe if precision is None else replace(recipe, precision=precision.value)


def _warn_of_emulation(recipe: Recipe, device_type: str) -> None:
    """Says so where this CPU has no bf16: a run is slow then, and nothing else shows why."""
    if device_type == "cpu" and recipe.precision == Precision.BF16 != native_precision():
        errors.print(
            "this CPU emulates bf16, several times slower than fp32; "
            "--precision fp32 is faster here, and comes to other weights",
            markup=False,
            highlight=False,
        )


def _given(options: Mapping[str, object]) -> str:
    return ", ".join(f"--{name}" for name, value in options.items() if value is not None)


def _model_check(checkpoint: Path) -> ModelCheck:
    files = CheckpointFiles.read(checkpoint)
    texts = TextPreprocessor(files.tokenizer, files.config.max_text_tokens)
    return ModelCheck(files.config.image_size, texts)
