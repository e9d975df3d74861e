"""Sep+Coop, Joint+Coop and their ablations: trained over several seeds, measured, compared.

    python -m benchmarks.bench.train_grid --work FOLDER [--base compact] [--seeds 1,2,3] [--jobs 2]

Each run is a process of one thread, and so many go side by side: a run of two threads takes more
than half of the time. What is done in FOLDER is not done again, and a stopped run resumes.
Then every system answers the same queries, as by `tandem evaluate`, and all are held against
Joint+Coop, as by `tandem compare`: R@1 over the seeds, how likely chance alone parts them, and R@1
by language. FOLDER/dev_recall.png shows how the runs learned, and
FOLDER/sample_efficiency.png what more pictures are worth, where the runs on fewer are there.

--rounds and --set make every run cheaper alike, where the base takes too long.

Scenes say no emoji's name, so what is asked of emoji is asked of Joint and Sep trained further on
emoji, image backbone and all. A checkpoint that was trained elsewhere is taken as trained where
FOLDER/RUN-SEED has it next to a done.txt; its recipe must be the run's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.support.tables.grid_plots import plot_dev_recalls, plot_sample_efficiency
from benchmarks.support.tables.grid_tables import language_table, recall_table, seed_table
from tandem.corpus.scenes.records import FAMILY_SIZE
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.training.recipes import named_recipes as recipes
from tandem.lab.training.recipes.named_recipes import RECIPES, NamedJoint
from tandem.lab.training.recipes.recipe import JointRecipe, in_rounds
from tandem.lab.training.recipes.recipe_settings import with_settings
from tandem.lab.training.runs import loss_curve
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.default_checkpoint import default_checkpoint

JOINT = "joint"
Varied = Callable[[int, NamedJoint], JointRecipe]


@dataclass(frozen=True, slots=True)
class Training:
    """How a run is trained."""

    recipe: Varied
    begins_with: tuple[str, ...] = ()
    """The run whose checkpoint it begins with, of the same seed; a BE's and a CE's are combined."""


@dataclass(frozen=True, slots=True)
class Base:
    """The recipe that every run varies: a named one, in other rounds and with other settings."""

    name: str
    rounds: int | None = None
    settings: tuple[str, ...] = ()

    def __call__(self, seed: int) -> JointRecipe:
        """Returns it; raises ValueError for a setting that a recipe does not have."""
        named = RECIPES[self.name](seed)
        assert isinstance(named, JointRecipe), "the grid compares joint models"
        scaled = named if self.rounds is None else in_rounds(named, self.rounds)
        return with_settings(scaled, self.settings)


def joint(seed: int, base: NamedJoint) -> JointRecipe:
    """The base as it is."""
    return base(seed)


def joint_longer(seed: int, base: NamedJoint) -> JointRecipe:
    """The base in as many steps as Sep's two runs are together, which both mask words."""
    whole = base(seed)
    be, ce, mlm = whole.be_steps_per_round, whole.ce_steps_per_round, whole.mlm_steps_per_round
    round_count = whole.round_count * (be + ce + 2 * mlm) // (be + ce + mlm)
    return replace(whole, name=f"{whole.name}_longer", round_count=round_count)


def of_fewer(recipe: Varied, divisor: int) -> Varied:
    """Returns the same run over the first families of its pool: what fewer pictures teach."""

    def smaller(seed: int, base: NamedJoint) -> JointRecipe:
        whole = recipe(seed, base)
        count = whole.pool_family_count // divisor
        return replace(whole, name=f"{whole.name}_of_{count}", pool_family_count=count)

    return smaller


def on_emoji(seed: int, base: NamedJoint) -> JointRecipe:
    """Trained further on emoji, for an eighth of the base's rounds; its image backbone first.

    Of 2,400 rounds that are 300, after 1,200 steps of the backbone together with the BE.
    """
    round_count = base(seed).round_count
    return replace(
        recipes.finetune("emoji", max(1, round_count // 8), seed),
        backbone_step_count=max(1, round_count // 2),
    )


RUNS: Mapping[str, Training] = {
    JOINT: Training(joint),
    "joint_longer": Training(joint_longer),
    "bi_encoder": Training(recipes.bi_encoder),
    "cross_encoder": Training(recipes.cross_encoder),
    "cross_encoder_after_be": Training(recipes.cross_encoder_after_be, ("bi_encoder",)),
    "half": Training(recipes.half),
    "no_masked_words": Training(recipes.no_masked_words),
    "random_negatives": Training(recipes.random_negatives),
    "cls_pooling": Training(recipes.cls_pooling),
    "pair_triplets": Training(recipes.pair_triplets),
    "ance": Training(recipes.ance),
    "ance_triplets": Training(recipes.ance_triplets),
    "ance_mismatches": Training(recipes.ance_mismatches),
    "joint_quarter": Training(of_fewer(joint, 4)),
    "joint_sixteenth": Training(of_fewer(joint, 16)),
    "joint_on_emoji": Training(on_emoji, (JOINT,)),
    "sep_on_emoji": Training(on_emoji, ("bi_encoder", "cross_encoder_after_be")),
}


# Joint on all its pictures and on fewer, for the curve of sample efficiency.
OF_FEWER = (JOINT, "joint_quarter", "joint_sixteenth")


@dataclass(frozen=True, slots=True)
class System:
    """What answers: the run whose CE reads pairs, and the run whose BE retrieves for it."""

    name: str
    run: str
    retriever: str | None = None

    def needs(self) -> set[str]:
        """Returns the runs without which it cannot answer."""
        return {self.run, self.retriever or self.run}


SYSTEMS = (
    System("Joint", JOINT),
    System("Sep", "cross_encoder_after_be", "bi_encoder"),
    System("Joint, in as many steps as Sep", "joint_longer"),
    System("Sep, CE from random weights", "cross_encoder", "bi_encoder"),
    System("Joint, half the layers", "half"),
    System("Joint, no masked words", "no_masked_words"),
    System("Joint, random negatives", "random_negatives"),
    System("Joint, embedding [CLS]", "cls_pooling"),
    System("Joint, CE by triplets", "pair_triplets"),
    System("Joint, mined negatives", "ance"),
    System("Joint, mined negatives in triplets alone", "ance_triplets"),
    System("Joint, mined mismatches alone", "ance_mismatches"),
    System("Joint, a quarter of the pictures", "joint_quarter"),
    System("Joint, a sixteenth of the pictures", "joint_sixteenth"),
)
SYSTEMS_ON_EMOJI = (System("Joint", "joint_on_emoji"), System("Sep", "sep_on_emoji"))


@dataclass(frozen=True, slots=True)
class Question:
    """One gallery, and how deep it is reranked: arguments of `tandem evaluate`."""

    title: str
    arguments: str
    systems: Sequence[System] = SYSTEMS
    """Who is asked; all are held against the first."""


# Drawings of one concept share their captions word by word, so each of them is an answer.
EMOJI = "--count 1000 --rerank-k 10 --rerank-k 20 --rerank-k 50 --fusion-k 20 --any-match"
QUESTIONS = {
    "scenes": Question(
        "1,000 scenes",
        "scenes --count 1000 --rerank-k 10 --rerank-k 20 --rerank-k 50 --fusion-k 20",
    ),
    "every_pair": Question("100 scenes, every pair read", "scenes --count 100 --rerank-k 100"),
    "unseen_style": Question(
        "emoji in an unseen style",
        f"emoji --split test_style {EMOJI}",
        SYSTEMS_ON_EMOJI,
    ),
    "unseen_concepts": Question(
        "emoji of unseen concepts",
        # Some drawings of other concepts are the same file, which evaluate counts as trained on.
        f"emoji --split test --allow-trained {EMOJI}",
        SYSTEMS_ON_EMOJI,
    ),
    "every_pair_of_style": Question(
        "100 emoji in an unseen style, every pair read",
        "emoji --split test_style --count 100 --rerank-k 100 --any-match",
        SYSTEMS_ON_EMOJI,
    ),
    "scenes_5k": Question(
        "1,000 scenes among 5,000",
        "scenes --count 1000 --distractors scenes:val:4000 --rerank-k 20",
    ),
    "scenes_100k": Question(
        "1,000 scenes among 100,000",
        "scenes --count 1000 --distractors scenes:val:99000 --rerank-k 20",
    ),
}


def train_run(base: Base, precision: Precision, work: Path, run: str, seed: int) -> str:
    """Trains one run, unless it is done; returns a line about it. It has a process of its own.

    Raises ValueError for a run that was done by another recipe: it would be compared as this one.
    """
    # Inside, as in the functions below: the parent process never needs torch.
    import torch

    from tandem.lab.training.sources.scene_source import SceneSource
    from tandem.lab.training.starting_model import as_trained, in_its_shape
    from tandem.lab.training.train import train
    from tandem.modeling.checkpoint import load_checkpoint

    folder, training = run_folder(work, run, seed), RUNS[run]
    recipe = replace(training.recipe(seed, base), precision=precision.value)
    init = _init(work, training, seed)
    is_tuning = recipe.corpus != "scenes"
    done = folder / "done.txt"
    if done.is_file():
        made_by = load_checkpoint(folder).training["recipe"]
        if is_tuning:
            recipe = replace(
                as_trained(recipe, init),
                pool_family_count=made_by["pool_family_count"],
                corpus_sha256=made_by.get("corpus_sha256", ""),
            )
        if differing := in_its_shape(recipe, init).differing(made_by):
            raise ValueError(
                f"{folder} was made by another recipe than {recipe.name} is now: "
                f"{', '.join(differing)} differ; remove it, or choose another --work"
            )
        return done.read_text()
    torch.set_num_threads(1)
    start_time = time.monotonic()
    if is_tuning:
        recall = _tune(recipe, init, folder)
    else:
        recall = str(train(recipe, SceneSource(), folder, _unseen, init=init, resume=True).best)
    done.write_text(f"{run} {seed}: dev {recall}, {time.monotonic() - start_time:,.0f} s")
    return done.read_text()


def _init(work: Path, training: Training, seed: int) -> Path:
    """Returns the checkpoint to begin with; two are combined again each time."""
    from tandem.modeling.separate_checkpoint import combine

    match [run_folder(work, run, seed) for run in training.begins_with]:
        case []:
            return default_checkpoint()
        case [trained]:
            return trained
        case [bi_encoder, cross_encoder]:
            combined = run_folder(work, "_and_".join(training.begins_with), seed)
            shutil.rmtree(combined, ignore_errors=True)  # one of them may have been retrained
            combine(bi_encoder, cross_encoder, combined)
            return combined
    raise AssertionError(f"a run begins with a model or with two, not {training.begins_with}")


def _tune(recipe: JointRecipe, init: Path, folder: Path) -> str:
    """Trains further on the recipe's corpus; returns the best dev recall.

    Captions that are too long for the model are left out: it could not read them.
    """
    from tandem.cli.corpora.corpora import open_corpus
    from tandem.lab.training.sources.chosen_captions import FittingCaptions
    from tandem.lab.training.sources.record_source import RecordSource
    from tandem.lab.training.starting_model import as_trained
    from tandem.lab.training.train import train
    from tandem.model_io.texts.text import TextPreprocessor
    from tandem.modeling.checkpoint_files import CheckpointFiles

    files = CheckpointFiles.read(init)
    captions = FittingCaptions(TextPreprocessor(files.tokenizer, files.config.max_text_tokens))
    train_records, dev_records = (
        captions.of(open_corpus(recipe.corpus, split, recipe.seed, None))
        for split in ("train", "val")
    )
    tuned = train(
        as_trained(recipe, init),
        RecordSource(train_records, dev_records),
        folder,
        _unseen,
        init=init,
        resume=True,
    )
    return f"{tuned.best}; before: {tuned.before}"


def _unseen(*_: object) -> None:
    """Takes a run's progress: of many in parallel, no one watches one."""


def train_all(arguments: argparse.Namespace, runs: Sequence[str], seeds: Sequence[int]) -> None:
    """Trains all runs, the first seed's first, each after the one that it begins with.

    Prints a line as each is done.
    """
    # Read by each process as it starts: torch's activations would go back to the kernel each step.
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "MALLOC_TRIM_THRESHOLD_": "2000000000",
        "MALLOC_MMAP_THRESHOLD_": "2000000000",
    }
    begin = partial(train_run, base_of(arguments), Precision(arguments.precision), arguments.work)
    waiting = [(run, seed) for seed in seeds for run in runs]
    running: dict[Future[str], tuple[str, int]] = {}
    done: set[tuple[str, int]] = set()
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as processes:
        while waiting or running:
            ready = [
                (run, seed)
                for run, seed in waiting
                if {(before, seed) for before in RUNS[run].begins_with} <= done
            ]
            for each in ready[: arguments.jobs - len(running)]:
                waiting.remove(each)
                running[processes.submit(begin, *each)] = each
            for over in wait(running, return_when=FIRST_COMPLETED).done:
                _note(over.result())
                done.add(running.pop(over))


def base_of(arguments: argparse.Namespace) -> Base:
    """Returns the base that the command line names."""
    return Base(arguments.base, arguments.rounds, tuple(arguments.settings))


def run_folder(work: Path, run: str, seed: int) -> Path:
    """Returns where a run's checkpoint is."""
    return work / f"{run}-{seed}"


def measured(work: Path, question: str, system: System, seed: int) -> Report:
    """Returns a system's report of a question, by `tandem evaluate` where it is not there yet."""
    folder = work / "reports" / f"{question}-{system.run}-{seed}"
    trained = [run_folder(work, run, seed) / "done.txt" for run in system.needs()]
    report = folder / "report.json"
    if not report.is_file() or any(_time(report) < _time(done) for done in trained):
        command = [sys.executable, "-m", "tandem.cli", "evaluate"]
        command += QUESTIONS[question].arguments.split()
        command += ["--checkpoint", str(run_folder(work, system.run, seed))]
        if system.retriever:
            command += ["--retriever", str(run_folder(work, system.retriever, seed))]
        subprocess.run([*command, "--report", str(folder)], stdout=subprocess.DEVNULL, check=True)
        _note(f"{question}: {system.name}, seed {seed}")
    return Report.read(report)


def measure_all(
    arguments: argparse.Namespace,
    runs: Sequence[str],
    questions: Sequence[str],
    seeds: Sequence[int],
) -> None:
    """Measures what is not measured yet, so many at a time, a process of one thread each."""
    with ThreadPoolExecutor(arguments.jobs) as threads:
        reports = [
            threads.submit(measured, arguments.work, question, system, seed)
            for question in questions
            for seed in seeds
            for system in _asked(question, runs)
        ]
        for report in reports:
            report.result()


def _asked(question: str, runs: Sequence[str]) -> list[System]:
    return [each for each in QUESTIONS[question].systems if each.needs() <= set(runs)]


def _curves(work: Path, runs: Sequence[str], seeds: Sequence[int]) -> dict[str, list[Path]]:
    """Returns the folders that have a curve: of runs on scenes, trained here."""
    folders = {
        run: [run_folder(work, run, seed) for seed in seeds]
        for run in runs
        if RUNS[run].recipe is not on_emoji
    }
    return {
        run: [each for each in of_run if (each / loss_curve.FILE_NAME).is_file()]
        for run, of_run in folders.items()
    }


def _plot_sample_efficiency(
    work: Path, base: Base, runs: Sequence[str], questions: Sequence[str], seeds: Sequence[int]
) -> None:
    """Draws it, where the runs on fewer pictures were asked the scenes."""
    if not set(OF_FEWER) <= set(runs) or "scenes" not in questions:
        return
    reports = {}
    for system in SYSTEMS:
        if system.run in OF_FEWER and not system.retriever:
            recipe = RUNS[system.run].recipe(1, base)
            count = recipe.pool_family_count * FAMILY_SIZE
            reports[count] = [measured(work, "scenes", system, seed) for seed in seeds]
    plot_sample_efficiency(reports, work / "sample_efficiency.png", k=20)


def _time(path: Path) -> float:
    return path.stat().st_mtime


def _note(event: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {event}", file=sys.stderr, flush=True)


def main() -> None:
    """Trains, measures, and prints a table for each question."""
    parser = argparse.ArgumentParser(description="Sep and Joint over several seeds")
    parser.add_argument("--work", type=Path, required=True, help="checkpoints and reports")
    parser.add_argument("--base", choices=sorted(RECIPES), default="compact")
    parser.add_argument("--rounds", type=int, help="of every run, by default the base's")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="field=value of the base"
    )
    parser.add_argument("--runs", default=",".join(RUNS), help="of these, by commas")
    parser.add_argument("--questions", default=",".join(QUESTIONS), help="of these, by commas")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default=native_precision().value)
    arguments = parser.parse_args()
    base_of(arguments)(1)  # a setting that no recipe has is refused before anything starts
    runs, seeds = arguments.runs.split(","), [int(seed) for seed in arguments.seeds.split(",")]
    questions = arguments.questions.split(",")
    for what, wanted, known in (("runs", runs, RUNS), ("questions", questions, QUESTIONS)):
        if unknown := set(wanted) - set(known):
            parser.error(f"no {what} {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for run in runs:
        if missing := set(RUNS[run].begins_with) - set(runs):
            parser.error(f"{run} begins with {', '.join(sorted(missing))}: add it to --runs")
    for question in questions:
        if not _asked(question, runs):
            names = " or ".join(sorted({each.run for each in QUESTIONS[question].systems}))
            parser.error(f"question {question} is asked of {names}: add it to --runs")
    train_all(arguments, runs, seeds)
    plot_dev_recalls(_curves(arguments.work, runs, seeds), arguments.work / "dev_recall.png")
    measure_all(arguments, runs, questions, seeds)
    _plot_sample_efficiency(arguments.work, base_of(arguments), runs, questions, seeds)
    for question in questions:
        reports = {
            system.name: [measured(arguments.work, question, system, seed) for seed in seeds]
            for system in _asked(question, runs)
        }
        tables = (recall_table(reports), seed_table(reports, seeds), language_table(reports))
        print(f"## {QUESTIONS[question].title}", *filter(None, tables), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
