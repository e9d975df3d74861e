"""`tandem train neighbours`: trains LeaPRR on the lists of tandem neighbours build."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_args

import typer

from tandem.cli.command_line import report_if_interrupted
from tandem.cli.options import MAX_SEED, MAX_SEED_COUNT, check_seeds
from tandem.cli.terminal.console import out
from tandem.cli.terminal.progress import LongWork
from tandem.lab.neighbours.leaprr.config import Profile, leaprr_config, with_settings
from tandem.lab.neighbours.leaprr.training_folder import LeaprrFolder, LeaprrPlan
from tandem.lab.neighbours.lists.neighbour_file import (
    NeighbourManifest,
    check_same_base,
    load_neighbours,
)

PROFILES = ("code", "paper")


def train_neighbours(
    lists: Annotated[Path, typer.Argument(help="lists of train, by tandem neighbours build")],
    dev: Annotated[Path, "lists of dev, on which the best epoch is chosen"],
    folder: Annotated[Path, "folder for the networks"] = Path("leaprr"),
    profile: Annotated[
        str, "code, as the published program, or paper, as the publication"
    ] = "code",
    epochs: Annotated[int, typer.Option(help="times to learn from each text", min=1)] = 30,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="change a field of the profile; repeatable"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="random seed, the first", min=0, max=MAX_SEED)] = 1,
    seeds: Annotated[
        int,
        typer.Option(
            help="number of seeds, each trained into its own folder in --folder",
            min=1,
            max=MAX_SEED_COUNT,
        ),
    ] = 1,
    resume: Annotated[bool, "resume a stopped run"] = False,
    overwrite: Annotated[bool, "replace another run in the folder"] = False,
) -> None:
    """Train LeaPRR on lists of neighbours.

    Keeps the networks of the best epoch on dev.
    """
    if resume and overwrite:
        raise ValueError("--resume continues a run and --overwrite replaces it; give one of them")
    check_seeds(seed, seeds)
    if profile not in get_args(Profile):
        raise ValueError(f"the profile is {profile!r}; it must be {' or '.join(PROFILES)}")
    config = with_settings(leaprr_config(profile), settings or ())  # type: ignore[arg-type]
    of_train, of_dev = load_neighbours(lists), load_neighbours(dev)
    # Networks that learn over the bi-encoder are measured over it.
    corpora = of_train, of_dev if of_train.pool_size else of_dev.without_pools()
    manifests = [NeighbourManifest.of(each) for each in corpora]
    check_same_base(dev, manifests[1], manifests[0], str(lists))
    if manifests[0].corpus_sha256 == manifests[1].corpus_sha256:
        raise ValueError(f"{dev} and {lists} are of one corpus: choose on records not learned from")
    chosen = range(seed, seed + seeds)
    folders = [LeaprrFolder(folder / f"seed_{each}" if seeds > 1 else folder) for each in chosen]
    for each in folders:
        if overwrite:
            each.clear()
        elif not resume:
            each.check_free()
    for number, run_folder in zip(chosen, folders, strict=True):
        plan = LeaprrPlan(profile, config, number, epochs, *manifests)  # type: ignore[arg-type]
        if resume and seeds > 1 and run_folder.is_over(plan):
            continue  # trained before the stop
        stage = f"train into {run_folder.path}"
        with report_if_interrupted(run_folder.kept), LongWork() as work:
            show, say = _shown_by(work, stage)
            done = run_folder.train(
                plan,
                corpora,
                resume=resume and (run_folder.has_state or seeds == 1),
                on_step=show,
                on_epoch=say,
            )
        out.print(
            f"{run_folder.path}: epoch {done.best_epoch} of {epochs}, dev rSum "
            f"{max(done.dev_recall_sums):.1f}"
        )


def _shown_by(
    work: LongWork, stage: str
) -> tuple[Callable[[int, float], None], Callable[[int, float], None]]:
    """Returns what shows a step's loss, and what prints an epoch's rSum."""

    def show(step: int, loss: float) -> None:
        work.show(stage, step, unit="steps", note=f"loss {loss:.3f}")

    def say(epoch: int, recall_sum: float) -> None:
        work.say(f"epoch {epoch}: dev rSum {recall_sum:.1f}")

    return show, say
