"""LeaPRR's tables 1, 2, 3 and 5 and its figures 2, 4 and 5 (Qu et al. 2023), in our terms.

    python -m benchmarks.bench.leaprr train dev test --work FOLDER --seeds 1,2,3 --runs full,bottom
    python -m benchmarks.bench.leaprr train dev test --work FOLDER --report --plot figures.png

The files are of `tandem neighbours build`. Each run differs from `full` in what its name says, and
is trained into FOLDER/RUN-SEED: a finished one is not repeated, and a stopped one continues after
its last epoch. `--report` measures what is there: a method without labels has the setting with the
highest rSum on dev, kept in FOLDER/label_free.json, and an empty `--methods` leaves them out. Texts
of one picture count as one query in tests. Times are CPU seconds of this process over all queries
of the gallery.

`--elsewhere FILE` is table 5: the networks reorder lists of another model or corpus as they are.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.support.tables.neighbour_rows import (
    DIRECTIONS,
    Ranks,
    Row,
    pool_lines,
    recall_lines,
    test_lines,
)
from tandem.lab.evaluation.ranking import Order, retrieve_order
from tandem.lab.neighbours.baselines.label_free import (
    EXPANSIONS,
    METHODS,
    SearchSide,
    search_sides,
    tuned,
)
from tandem.lab.neighbours.leaprr.config import LeaprrConfig, leaprr_config, with_settings
from tandem.lab.neighbours.leaprr.refinement import (
    LeaprrModel,
    Networks,
    RefinedOrders,
    refine,
    refine_as_served,
)
from tandem.lab.neighbours.leaprr.training_folder import LeaprrFolder, LeaprrPlan
from tandem.lab.neighbours.lists.corpus_neighbours import CorpusNeighbours
from tandem.lab.neighbours.lists.neighbour_file import (
    NeighbourManifest,
    check_same_base,
    load_neighbours,
)
from tandem.lab.neighbours.lists.neighbour_lists import SimilarityLists
from tandem.lab.neighbours.neighbour_orders import AS_SERVED

Refine = Callable[[LeaprrModel, SimilarityLists, Networks], RefinedOrders]

FULL: Final = "full"
NEIGHBOUR_COUNTS: Final = (2, 4, 16)
PILLAR_COUNTS: Final = (2, 4, 16, 32)

RUNS: Final[Mapping[str, tuple[str, ...]]] = {
    FULL: (),
    "bottom": ("pillar_rank=bottom",),
    "random": ("pillar_rank=random",),
    "inter": ("pillar_modality=inter",),
    "intra": ("pillar_modality=intra",),
    "no_contrastive": ("contrastive_weight=0",),
    "no_triplet": ("triplet_weight=0",),
    "no_alignment": ("alignment_weight=0",),
    **{
        f"neighbours_{count}": (
            f"image_query_neighbours={count}",
            f"text_query_neighbours={count}",
        )
        for count in NEIGHBOUR_COUNTS
    },
    **{f"pillars_{count}": (f"pillar_count={count}",) for count in PILLAR_COUNTS},
}
"""What each run changes in the settings of `full`."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs share."""

    work: Path
    train: CorpusNeighbours
    dev: CorpusNeighbours
    profile: str
    settings: tuple[str, ...]
    epoch_count: int
    methods: tuple[str, ...] = tuple(METHODS)
    """Methods without labels to measure."""

    def plan(self, run: str, seed: int) -> LeaprrPlan:
        """Returns the plan of a run of this seed."""
        manifests = [NeighbourManifest.of(each) for each in (self.train, self.dev)]
        return LeaprrPlan(
            self.profile,  # type: ignore[arg-type]
            self.config(run),
            seed,
            self.epoch_count,
            *manifests,
        )

    def config(self, run: str) -> LeaprrConfig:
        """Returns the configuration of a run; its own settings win over the common ones."""
        common = with_settings(leaprr_config(self.profile), self.settings)  # type: ignore[arg-type]
        return with_settings(common, RUNS[run])


def trained(bench: Bench, run: str, seed: int) -> None:
    """Trains one run into its folder, unless it is there."""
    folder, plan = LeaprrFolder(bench.work / f"{run}-{seed}"), bench.plan(run, seed)
    if folder.is_over(plan):
        return

    def say(epoch: int, recall_sum: float) -> None:
        print(f"{folder.path.name} epoch {epoch}: dev rSum {recall_sum:.1f}", flush=True)

    corpora = bench.train, bench.dev
    training = folder.train(plan, corpora, resume=folder.has_state, on_epoch=say)
    print(f"{folder.path.name}: epoch {training.best_epoch}, {training.seconds:.0f} s", flush=True)


def label_free_rows(bench: Bench, test: CorpusNeighbours) -> list[Row]:
    """Returns a row of each chosen method without labels that applies to the base."""
    dev, path = bench.dev, bench.work / "label_free.json"
    digests = [dev.source.corpus_sha256, test.source.corpus_sha256, test.source.model_fingerprint]
    kept: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if kept.get("digests") != digests:
        kept = {"digests": digests, "methods": {}}
    sides = search_sides(test)
    chosen = [each for each in bench.methods if not (dev.pool_size and each in EXPANSIONS)]
    for method in chosen:
        if method in kept["methods"]:
            continue
        setting = tuned(method, dev)
        start = time.process_time()
        orders = [setting.order_of(each) for each in sides]
        kept["methods"][method] = {
            "setting": setting.text,
            "ranks": ranks_of(sides, [orders]),
            "cpu_seconds": time.process_time() - start,
        }
        path.write_text(json.dumps(kept))
        print(f"{method}: {setting.text}", flush=True)
    texts = test.image_of_text.tolist()
    return [
        Row(name, kept["methods"][name]["setting"], tuple(kept["methods"][name]["ranks"]), texts)
        for name in chosen
    ]


def learned_row(
    bench: Bench,
    test: CorpusNeighbours,
    run: str,
    networks: Networks = "both",
    refined_by: Refine = refine,
) -> Row | None:
    """Returns the row of a run's trained seeds; None where there are none.

    Raises ValueError for networks of another plan than the run's.
    """
    sides, orders, lists = search_sides(test), [], test.similarity_lists()
    for path in sorted(bench.work.glob(f"{run}-[0-9]*")):
        folder = LeaprrFolder(path)
        if not (path / "training.json").is_file() or folder.has_state:
            continue
        model, training = folder.read()
        if model.config != bench.config(run):
            raise ValueError(f"{path} has other settings; give those that it was trained with")
        refined = refined_by(model, lists, networks)
        orders.append([refined.texts_of_image, refined.images_of_text])
        assert training.is_over
    if not orders:
        return None
    alone = "" if networks == "both" else f", {networks.replace('_', ' ')} alone"
    name = "LeaPRR" if run == FULL else f"LeaPRR {run.replace('_', ' ')}"
    name += AS_SERVED if refined_by is refine_as_served else ""
    setting = f"{bench.profile}, {len(orders)} seeds" if len(orders) > 1 else bench.profile
    ranks = ranks_of(sides, orders)
    return Row(f"{name}{alone}", setting, ranks, test.image_of_text.tolist())


def ranks_of(sides: Sequence[SearchSide], orders: Sequence[Sequence[Order]]) -> Ranks:
    """Returns the ranks of both directions by seed, of each seed's two orders."""
    by_image, by_text = (
        [side.ranks_of(of_seed[number]) for of_seed in orders] for number, side in enumerate(sides)
    )
    return by_image, by_text


def base_row(test: CorpusNeighbours) -> Row:
    """Returns the row of the base's own order, in which all pools of a gallery share one scale."""
    sides = search_sides(test)
    ranks = ranks_of(sides, [[retrieve_order(each.base) for each in sides]])
    return Row(test.base, "", ranks, test.image_of_text.tolist())


def base_as_served(test: CorpusNeighbours) -> Row:
    """Returns the row of the order that a search reorders, which knows its own pool."""
    lists = test.similarity_lists()
    orders = [retrieve_order(each.found()) for each in (lists, lists.reversed())]
    ranks = ranks_of(search_sides(test), [orders])
    return Row(f"{test.base}{AS_SERVED}", "", ranks, test.image_of_text.tolist())


def report(bench: Bench, test: CorpusNeighbours, elsewhere: Sequence[Path]) -> Iterator[str]:
    """Yields every table of what is trained."""
    base = base_row(test)
    full = learned_row(bench, test, FULL)
    alone = [
        learned_row(bench, test, FULL, networks) for networks in ("image_queries", "text_queries")
    ]
    label_free = label_free_rows(bench, test)
    yield json.dumps({"queries": [len(each[0]) for each in base.ranks], **about(test)})
    yield json.dumps({"settings": asdict(bench.config(FULL)), "epochs": bench.epoch_count})
    yield from ["", "Table 1", ""]
    yield from recall_lines(base, [base, *label_free, *([full] if full else [])])
    if full:
        yield ""
        yield from test_lines(full, [base, *label_free])
    if served := learned_row(bench, test, FULL, refined_by=refine_as_served):
        searched = base_as_served(test)
        yield ""
        yield from recall_lines(searched, [searched, served])
        yield ""
        yield from test_lines(served, [searched, *label_free])
    yield from ["", "Headroom", "", *pool_lines(base), "", "Tables 2 and 3, Figures 4 and 5", ""]
    others = [*alone, *(learned_row(bench, test, run) for run in RUNS if run != FULL)]
    found = [row for row in others if row]
    yield from recall_lines(base, [base, *([full] if full else []), *found])
    if full:
        yield ""
        yield from test_lines(full, found)
    for path in elsewhere:
        other = load_neighbours(path)
        row, its_base = learned_row(bench, other, FULL), base_row(other)
        yield from ["", f"Table 5: {path.name}, {json.dumps(about(other))}", ""]
        yield from recall_lines(its_base, [its_base, *([row] if row else [])])


def about(test: CorpusNeighbours) -> dict[str, object]:
    """Returns what a table is about."""
    return {
        "base": test.base,
        "model": test.source.model_fingerprint[:12],
        "corpus": f"{Path(test.source.corpus).name} {test.source.split} seed {test.source.seed}",
        "digest": test.source.corpus_sha256[:12],
    }


def plot(bench: Bench, test: CorpusNeighbours, path: Path) -> None:
    """Draws figure 2, recall against time, and figures 4 and 5, recall against K and L.

    Figure 2 is left out without methods to compare with, and the others without their runs. Raises
    ValueError where nothing is left.
    """
    config = bench.config(FULL)
    panels: list[Callable[[Axes], None]] = []
    if bench.methods:
        panels.append(partial(_plot_time, bench, test))
    for prefix, counts, at, label in [
        ("neighbours", NEIGHBOUR_COUNTS, config.image_query_neighbours, "neighbours of a graph, K"),
        ("pillars", PILLAR_COUNTS, config.pillar_count, "pillars of each modality, L"),
    ]:
        runs = {at: FULL} | {count: f"{prefix}_{count}" for count in counts if count != at}
        rows = {count: learned_row(bench, test, run) for count, run in sorted(runs.items())}
        found = {count: row for count, row in rows.items() if row}
        if len(found) > 1:
            panels.append(partial(_plot_counts, base_row(test), found, label))
    if not panels:
        raise ValueError(f"{bench.work} has no runs to draw, and no methods are given")
    figure = Figure(figsize=(4.6 * len(panels), 4), layout="constrained")
    for draw, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        draw(axes)
    figure.savefig(path, dpi=120)


def _plot_time(bench: Bench, test: CorpusNeighbours, axes: Axes) -> None:
    kept = json.loads((bench.work / "label_free.json").read_text())["methods"]
    count = len(test.images) + len(test.texts)
    points = [
        (row.method, 1e3 * kept[row.method]["cpu_seconds"] / count, row)
        for row in label_free_rows(bench, test)
    ]
    if full := learned_row(bench, test, FULL):
        points.append(("LeaPRR", 1e3 * refine_seconds(bench, test) / count, full))
    for number, (name, milliseconds, row) in enumerate(points):
        height = fmean(row.recall_sums())
        axes.scatter(milliseconds, height, s=16, color="C3" if name == "LeaPRR" else "C0")
        axes.annotate(
            name,
            (milliseconds, height),
            fontsize=6,
            xytext=(4, 8 * (number % 4) - 10),  # neighbouring labels at different heights
            textcoords="offset points",
        )
    axes.axhline(fmean(base_row(test).recall_sums()), linestyle="--", color="grey", label=test.base)
    axes.set(xscale="log", xlabel="CPU of a query, ms", ylabel="rSum")
    axes.legend(fontsize=7)


def refine_seconds(bench: Bench, test: CorpusNeighbours) -> float:
    """Returns the CPU seconds of one seed's reordering of the gallery, graphs included."""
    model, _ = LeaprrFolder(next(iter(sorted(bench.work.glob(f"{FULL}-[0-9]*"))))).read()
    lists = test.similarity_lists()
    start = time.process_time()
    refine(model, lists)
    return time.process_time() - start


def _plot_counts(base: Row, found: Mapping[int, Row], label: str, axes: Axes) -> None:
    for side, name in enumerate(DIRECTIONS):
        values = {count: row.recalls()[3 * side] for count, row in found.items()}
        means = [fmean(each) for each in values.values()]
        [line] = axes.plot(list(values), means, "o-", label=name)
        for count, each in values.items():
            axes.vlines(count, min(each), max(each), color=line.get_color())
        axes.axhline(base.recalls()[3 * side][0], linestyle="--", color=line.get_color())
    axes.set(xscale="log", xlabel=label, ylabel="R@1, %; dashed: the base")
    axes.set_xticks(sorted(found), [str(each) for each in sorted(found)])
    axes.minorticks_off()
    axes.legend(fontsize=7)


def main() -> None:
    """Trains what is missing, or measures what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("train", "dev", "test"):
        parser.add_argument(name, type=Path, help="lists of tandem neighbours build")
    parser.add_argument("--work", type=Path, required=True, help="trained networks")
    parser.add_argument("--runs", default=FULL, help=f"of {', '.join(RUNS)}, by commas")
    parser.add_argument("--seeds", default="1", help="by commas")
    parser.add_argument("--profile", choices=("code", "paper"), default="code")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="of all runs")
    parser.add_argument(
        "--methods", nargs="*", choices=tuple(METHODS), default=list(METHODS), metavar="METHOD"
    )
    parser.add_argument("--elsewhere", type=Path, nargs="*", default=[])
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--plot", type=Path, help="with --report: draw the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train, dev, test = (
        load_neighbours(path) for path in (arguments.train, arguments.dev, arguments.test)
    )
    if not train.pool_size:
        dev, test = dev.without_pools(), test.without_pools()
    for path, lists in ((arguments.dev, dev), (arguments.test, test)):
        check_same_base(
            path, NeighbourManifest.of(lists), NeighbourManifest.of(train), str(arguments.train)
        )
    bench = Bench(
        arguments.work,
        train,
        dev,
        arguments.profile,
        tuple(arguments.settings),
        arguments.epochs,
        tuple(arguments.methods),
    )
    bench.work.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        for seed in arguments.seeds.split(","):
            for run in arguments.runs.split(","):
                trained(bench, run, int(seed))
        return
    for line in report(bench, test, arguments.elsewhere):
        print(line)
    if arguments.plot:
        plot(bench, test, arguments.plot)


if __name__ == "__main__":
    main()
