"""What reranking by neighbours adds to a base: the tables of LeaPRR (Qu et al. 2023), in our terms.

    tandem neighbours build dev.neighbours --split val --count 1000
    tandem neighbours build test.neighbours --split test --count 1000
    python -m benchmarks.bench.neighbours dev.neighbours test.neighbours [--leaprr FOLDER ...]

Table 1: each method without labels with the settings that have the highest rSum on dev, and LeaPRR
by the folders of `tandem train neighbours`, its seeds one row with their mean. Each row has the p
of a paired test of R@1 against the base, and LeaPRR's rows against each other method; answers of
several seeds to one query count as one. Table 3: each of the folders' networks alone.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.support.neighbour_rows import Row, recall_lines, test_lines
from tandem.evaluation.ranking import Order, retrieve_order
from tandem.neighbours.corpus_neighbours import CorpusNeighbours
from tandem.neighbours.label_free import EXPANSIONS, METHODS, SearchSide, search_sides, tuned
from tandem.neighbours.leaprr.refinement import Networks, refine
from tandem.neighbours.leaprr.training_folder import LeaprrFolder
from tandem.neighbours.neighbour_file import NeighbourManifest, check_same_base, load_neighbours

LEAPRR = "LeaPRR"


def main() -> None:
    """Tunes, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dev", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--leaprr", type=Path, nargs="*", default=[], help="a folder for each seed")
    parser.add_argument("--ablations", type=Path, nargs="*", default=[], help="one folder a row")
    parser.add_argument("--no-label-free", action="store_true", help="measure LeaPRR alone")
    arguments = parser.parse_args()
    start_time = time.monotonic()
    dev, test = load_neighbours(arguments.dev), load_neighbours(arguments.test)
    check_same_base(arguments.dev, NeighbourManifest.of(dev), NeighbourManifest.of(test), "test")
    sides = search_sides(test)
    base = Row(test.base, "", _ranks(sides, [[retrieve_order(each.base) for each in sides]]))
    label_free = [] if arguments.no_label_free else list(_label_free(dev, sides))
    rows = [base, *label_free]
    if arguments.leaprr:
        rows += [
            _learned(test, sides, arguments.leaprr, networks)
            for networks in ("both", "image_queries", "text_queries")
        ]
    rows += [_learned(test, sides, [each], "both") for each in arguments.ablations]
    print(json.dumps({"queries": [len(each.answers) for each in sides], **_about(test)}))
    print("\n" + "\n".join(recall_lines(base, rows)))
    for row in rows:
        if row.method == LEAPRR and label_free:
            print("\n" + "\n".join(test_lines(row, [base, *label_free])))
            break
    print(f"\n{time.monotonic() - start_time:.0f} seconds")


def _label_free(dev: CorpusNeighbours, sides: Sequence[SearchSide]) -> Iterator[Row]:
    for method in METHODS:
        if dev.pool_size and method in EXPANSIONS:
            continue
        setting = tuned(method, dev)
        yield Row(method, setting.text, _ranks(sides, [[setting.order_of(each) for each in sides]]))


def _learned(
    test: CorpusNeighbours,
    sides: Sequence[SearchSide],
    folders: Sequence[Path],
    networks: Networks,
) -> Row:
    orders = []
    for folder in folders:
        model, training = LeaprrFolder(folder).read()
        check_same_base(folder, training.plan.train, NeighbourManifest.of(test), "test")
        refined = refine(model, test.similarity_lists(), networks)
        orders.append([refined.texts_of_image, refined.images_of_text])
    names = ", ".join(each.name for each in folders)
    alone = "" if networks == "both" else f", {networks.replace('_', ' ')} alone"
    return Row(f"{LEAPRR}{alone}", names, _ranks(sides, orders))


def _ranks(
    sides: Sequence[SearchSide], orders: Sequence[Sequence[Order]]
) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
    """Returns the ranks of both directions by seed, of each seed's two orders."""
    by_image, by_text = (
        [side.ranks_of(of_seed[number]) for of_seed in orders] for number, side in enumerate(sides)
    )
    return by_image, by_text


def _about(test: CorpusNeighbours) -> dict[str, object]:
    return {
        "base": test.base,
        "model": test.source.model_fingerprint[:12],
        "corpus": f"{test.source.corpus} {test.source.split} seed {test.source.seed}",
        "digest": test.source.corpus_sha256[:12],
    }


if __name__ == "__main__":
    main()
