"""How many judged queries find a difference of two systems: simulated, and of real models.

    python -m benchmarks.bench.golden [--pair REPORT:ORDER REPORT:ORDER]...
    python -m benchmarks.bench.golden --corpus CORPUS --models BEFORE AFTER --work FOLDER

Simulated: the rank of a query's answer is log-normal in each system, and correlated between the
two, whose R@1 differ by 3 points. A pair is of two reports of `tandem evaluate` on the same
queries, with an order of each such as "BE"; all of their queries give the true difference. Of all
systems 2,000 draws of --queries queries give the power; simulated too are draws of queries at which
the first items differ. With --models two model repositories search the pictures of a corpus's split
by all of its captions, in --orders; whose captions they are is the truth. Draws of --queries of
them, and of those whose first items differ, give the power, and one golden set of the latter is
made and judged.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import NormalDist

import numpy as np

from tandem import Engine
from tandem.cli.corpora.corpora import open_corpus
from tandem.cli.golden.start import answers
from tandem.contract.content import Modality
from tandem.corpus.judged_queries import JudgedQuery, read_judged_queries
from tandem.lab.evaluation.golden_set import POOL_NAME, Judgements, write_golden_set
from tandem.lab.evaluation.golden_standing import needed_query_count, standings
from tandem.lab.evaluation.metrics import paired_p_value
from tandem.lab.evaluation.reports.report import Report
from tandem.platform.files.json_object import read_object

INDEX_ID = "golden"
DEPTH = 10
DRAW_COUNT = 2_000
LIST_LENGTH = 100
# Deviation of the logarithm of ranks to base 2, and R@1 of the first system; Flickr8k dev has both
# where R@1 is 25.4 and R@10 68.8 (photographs_2026-11-27.md).
SPREAD = 2.14
FIRST_R_AT_1 = 0.25
NORMAL = NormalDist()


def main() -> None:
    """Prints a line of JSON for each row, and a table."""
    arguments = _arguments()
    if arguments.models:
        _judge_models(arguments)
        return
    rows = [*_simulated(arguments.queries), *_simulated_drawn(arguments.queries)]
    for before, after in arguments.pair:
        rows += _rows(f"{before}, {after}", _ranks(before), _ranks(after), arguments.queries)
    for row in rows:
        print(json.dumps(row))
    print("\n| systems | measure | difference | mean square | power | queries for 0.8 |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row['systems']} | {row['measure']} | {row['difference']:.3f} | "
            f"{row['mean_square']:.3f} | {row['power']:.2f} | {row['needed']:,} |"
        )


def _simulated(query_count: int) -> Iterator[dict[str, object]]:
    """Yields the power of golden sets of systems whose ranks are correlated so much."""
    for correlation in (0.5, 0.7, 0.8, 0.9, 0.95):
        chance = np.random.default_rng(1)
        size = 200_000
        first = chance.standard_normal(size)
        other = correlation * first + math.sqrt(1 - correlation**2) * chance.standard_normal(size)
        ranks = [
            np.exp2(np.maximum(1 + SPREAD * (z - NORMAL.inv_cdf(r_at_1)), 0)).astype(int)
            for z, r_at_1 in ((first, FIRST_R_AT_1), (other, FIRST_R_AT_1 + 0.03))
        ]
        yield from _rows(f"simulated, correlation {correlation}", ranks[0], ranks[1], query_count)


def _simulated_drawn(query_count: int) -> Iterator[dict[str, object]]:
    """Yields the power of queries drawn where first items differ, by how many of all these are."""
    for discordance in (0.04, 0.07, 0.10, 0.15):
        for ratio in (1.0, 1.5, 2.0, 3.0):
            share = ratio * discordance
            counts = np.random.default_rng(1).multinomial(
                query_count,
                [(discordance + side) / 2 / share for side in (0.03, -0.03)] + [1 - 1 / ratio],
                size=DRAW_COUNT,
            )
            signs = [[1] * up + [-1] * down for up, down, _ in counts.tolist()]
            found = [paired_p_value(each, [0] * len(each)) < 0.05 for each in signs]
            yield {
                "systems": f"simulated, first items differ at {share:.3f}",
                "measure": "R@1",
                "difference": 0.03,
                "mean_square": discordance,
                "power": float(np.mean(found)),
                "needed": math.ceil(share * needed_query_count(discordance, 0.03)),
            }


def _rows(
    systems: str,
    before: np.ndarray,
    after: np.ndarray,
    query_count: int,
    differs: np.ndarray | None = None,
) -> Iterator[dict[str, object]]:
    """Yields difference, power and needed queries of R@1 and of rank, as golden sets see them.

    `differs` says at which queries the first items do: only these are drawn, and count.
    """
    drawn_from = np.ones(len(before), bool) if differs is None else differs
    known = (np.minimum(before, after) <= DEPTH) & drawn_from
    halvings = np.log2(np.minimum(before, LIST_LENGTH + 1) / np.minimum(after, LIST_LENGTH + 1))
    of_measures = {
        "R@1": (after == 1).astype(float) - (before == 1),
        "rank": np.where(known, halvings, 0.0),
    }
    chance = np.random.default_rng(2)
    for measure, differences in of_measures.items():
        found = 0
        for _ in range(DRAW_COUNT):
            drawn = chance.choice(differences[drawn_from], query_count, replace=False)
            if measure == "R@1":
                signs = drawn.astype(int).tolist()
                found += paired_p_value(signs, [0] * query_count) < 0.05
            else:
                # Student's t at 199 degrees of freedom, two-sided 0.05.
                found += abs(drawn.mean()) > 1.972 * drawn.std(ddof=1) / math.sqrt(query_count)
        mean, square = float(differences.mean()), float((differences**2).mean())
        yield {
            "systems": systems,
            "measure": measure,
            "query_count": len(differences),
            "drawn_from": int(drawn_from.sum()),
            "difference": mean,
            "mean_square": square,
            "power": found / DRAW_COUNT,
            "needed": math.ceil(drawn_from.mean() * needed_query_count(square, abs(mean))),
        }


def _ranks(place: str) -> np.ndarray:
    path, _, order = place.rpartition(":")
    ranking = Report.read(Path(path)).ranking("text→image", order)
    return np.array([LIST_LENGTH + 1 if rank is None else rank for rank in ranking.ranks])


def _judge_models(arguments: argparse.Namespace) -> None:
    """Prints the power of draws, then makes one golden set and prints where it stands."""
    records = list(open_corpus(arguments.corpus, arguments.split, 1, arguments.count))
    answer_ids = {
        caption.text: record.record_id for record in records for caption in record.captions
    }
    texts = list(answer_ids)
    drawn = np.random.default_rng(3).permutation(len(texts))[: arguments.asked]
    queries = [JudgedQuery(f"q{n}", texts[n], Modality.IMAGE, {}) for n in drawn]
    runs = {}
    systems = zip(("before", "after"), arguments.models, arguments.orders, strict=True)
    for name, model, order in systems:
        with Engine(arguments.work / name, model=model, timeout_seconds=600.0) as engine:
            pictures = ((each.record_id, each.image.read()) for each in records)
            assert not [each for each in engine.ingest(pictures, index_id=INDEX_ID) if each.error]
            runs[name], _ = answers(engine, INDEX_ID, order, queries, lambda _: None)
    before, after = (
        np.array(
            [
                [*run[query.query_id], answer_ids[str(query.content)]].index(
                    answer_ids[str(query.content)]
                )
                + 1
                for query in queries
            ]
        )
        for run in runs.values()
    )
    differs = np.array([len({run[q.query_id][0] for run in runs.values()}) > 1 for q in queries])
    rows = [
        *_rows("any queries", before, after, arguments.queries),
        *_rows("first items differ", before, after, arguments.queries, differs),
    ]
    for row in rows:
        print(json.dumps(row))
    folder = arguments.work / "golden"
    about = {"index_id": INDEX_ID}
    print(json.dumps(write_golden_set(folder, queries, runs, DEPTH, 1, about, arguments.queries)))
    pool = read_object(folder / POOL_NAME)
    for share in (0.0, 0.25, 1.0):
        read = [each for each in read_judged_queries(folder) if each.query_id in pool]
        _judge(folder, read[: round(share * len(read))], answer_ids)
        for each in standings(read_judged_queries(folder), pool, runs):
            print(json.dumps({"judged_share": share, **each}))


def _judge(folder: Path, queries: Sequence[JudgedQuery], answer_ids: dict[str, str]) -> None:
    pool = read_object(folder / POOL_NAME)
    with closing(Judgements(folder)) as judgements:
        for query in queries:
            for item_id in sorted({*pool[query.query_id]} - query.grades.keys()):
                is_match = answer_ids[str(query.content)] == item_id
                judgements.add(query.query_id, item_id, int(is_match))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--pair", nargs=2, action="append", default=[])
    parser.add_argument("--corpus", default="scenes")
    parser.add_argument("--split", default="val")
    parser.add_argument("--count", type=int)
    parser.add_argument("--models", type=Path, nargs=2)
    parser.add_argument("--orders", nargs=2, default=["be", "be"])
    parser.add_argument("--asked", type=int, help="captions, at most")
    parser.add_argument("--work", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
