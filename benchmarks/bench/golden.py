"""How many judged queries find a difference of two systems: simulated, and of two real models.

    python -m benchmarks.bench.golden
    python -m benchmarks.bench.golden --corpus CORPUS --models BEFORE AFTER --work FOLDER

Simulated: the rank of a query's answer is log-normal in each system, and correlated between the
two, whose R@1 differ by 3 points. Real: two model repositories, each in an engine over the pictures
of a corpus's split; every caption is a query, and its own picture the only match, which gives the
true difference. One golden set of --queries is written, pooled and judged by the captions as
`tandem golden` does it; 2,000 draws of so many queries give the power.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
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
    """Prints a line of JSON for each row, and the tables."""
    arguments = _arguments()
    rows = list(_simulated(arguments.queries))
    if arguments.models:
        rows += _real(arguments)
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
    """Yields the power of golden sets of systems that are correlated so much."""
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


def _rows(
    systems: str, before: np.ndarray, after: np.ndarray, query_count: int
) -> Iterator[dict[str, object]]:
    """Yields difference, power and needed queries of R@1 and of rank, as golden sets see them."""
    known = np.minimum(before, after) <= DEPTH
    values = {
        "R@1": ((before == 1).astype(float), (after == 1).astype(float)),
        "rank": tuple(
            np.where(known, -np.log2(np.minimum(each, LIST_LENGTH + 1)), 0.0)
            for each in (before, after)
        ),
    }
    chance = np.random.default_rng(2)
    for measure, (one, other) in values.items():
        differences = other - one
        found = 0
        for _ in range(DRAW_COUNT):
            drawn = chance.choice(len(differences), query_count, replace=False)
            if measure == "R@1":
                found += paired_p_value(other[drawn].astype(int), one[drawn].astype(int)) < 0.05
            else:
                part = differences[drawn]
                # Student's t at 199 degrees of freedom, two-sided 0.05.
                found += abs(part.mean()) > 1.972 * part.std(ddof=1) / math.sqrt(query_count)
        mean, square = float(differences.mean()), float((differences**2).mean())
        yield {
            "systems": systems,
            "measure": measure,
            "difference": mean,
            "mean_square": square,
            "power": found / DRAW_COUNT,
            "needed": needed_query_count(square, abs(mean)),
        }


def _real(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    records = list(open_corpus(arguments.corpus, arguments.split, 1, arguments.count))
    answer_ids = {
        caption.caption_id: record.record_id for record in records for caption in record.captions
    }
    queries = [
        JudgedQuery(caption.caption_id, caption.text, Modality.IMAGE, {})
        for record in records
        for caption in record.captions
    ]
    runs = {}
    for name, model in zip(("before", "after"), arguments.models, strict=True):
        with Engine(arguments.work / name, model=model, timeout_seconds=600.0) as engine:
            pictures = ((each.record_id, each.image.read()) for each in records)
            assert not [each for each in engine.ingest(pictures, index_id=INDEX_ID) if each.error]
            runs[name], _ = answers(engine, INDEX_ID, "be", queries, lambda _: None)
    (arguments.work / "runs.json").write_text(json.dumps(runs))
    ranks = [
        np.array([_rank(run[query_id], wanted) for query_id, wanted in answer_ids.items()])
        for run in runs.values()
    ]
    differing = np.mean(
        [runs["before"][each][:1] != runs["after"][each][:1] for each in answer_ids]
    )
    print(json.dumps({"queries": len(queries), "differing_first_items": float(differing)}))
    _judge_one(arguments, queries, runs, answer_ids)
    yield from _rows("real", ranks[0], ranks[1], arguments.queries)


def _judge_one(
    arguments: argparse.Namespace,
    queries: Sequence[JudgedQuery],
    runs: Mapping[str, Mapping[str, Sequence[str]]],
    answer_ids: Mapping[str, str],
) -> None:
    """Writes one golden set, judges its pool by the captions, and prints where it stands."""
    drawn = np.random.default_rng(3).choice(len(queries), arguments.queries, replace=False)
    folder = arguments.work / "golden"
    write_golden_set(folder, [queries[n] for n in drawn], runs, DEPTH, 1, {"index_id": INDEX_ID})
    pool = read_object(folder / POOL_NAME)
    for share in (0.25, 1.0):
        read = read_judged_queries(folder)
        with closing(Judgements(folder)) as judgements:
            for query in read[: round(share * len(read))]:
                for item_id in set(pool[query.query_id]) - query.grades.keys():
                    is_match = answer_ids[query.query_id] == item_id
                    judgements.add(query.query_id, item_id, int(is_match))
        for each in standings(read_judged_queries(folder), pool, runs):
            print(json.dumps({"judged_share": share, **asdict(each), "target": each.target.value}))


def _rank(ids: Sequence[str], wanted: str) -> int:
    return ids.index(wanted) + 1 if wanted in ids else LIST_LENGTH + 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--corpus", default="scenes")
    parser.add_argument("--split", default="val")
    parser.add_argument("--count", type=int)
    parser.add_argument("--models", type=Path, nargs=2)
    parser.add_argument("--work", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
