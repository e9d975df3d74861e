"""Implements `tandem calibrate`: measures what the scores of a served index mean."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.corpora.corpora import CORPUS_HELP, open_corpus
from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS, MAX_SEED, with_options
from tandem.cli.terminal.console import out
from tandem.cli.terminal.progress import query_progress
from tandem.client import Access, Client
from tandem.corpus.judged_queries import JudgedQuery, drawn_from, read_judged_queries
from tandem.corpus.left_out import LeftOut
from tandem.lab.evaluation.calibration.index_calibration import (
    MeasuredScores,
    captioned_queries,
    measured_scores,
)

_RATES = (0.01, 0.05, 0.1)
_STAGE = "queries"
# As long as a server allows: a rerank that runs out of time measures nothing.
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateIndexOptions:
    """The options of the command."""

    index: Annotated[str, "index to measure"] = "scenes"
    queries: Annotated[
        Path | None,
        typer.Option(help="judged queries, a folder or a .jsonl file (docs/golden-sets.md)"),
    ] = None
    corpus: Annotated[
        str | None,
        f"without --queries: the ingested corpus, captions and all: {CORPUS_HELP}",
    ] = None
    split: Annotated[str, "its split"] = "test"
    count: Annotated[int | None, typer.Option(help="records of it", min=1)] = None
    seed: Annotated[int, typer.Option(help="seed of the scenes", min=0, max=MAX_SEED)] = 1
    query_count: Annotated[
        int,
        typer.Option(help="most queries in each direction, drawn at random", min=40),
    ] = 1_000
    rerank_k: Annotated[
        int,
        typer.Option(help="candidates to rerank; to abstain, searches rerank no more", min=2),
    ] = 20
    hybrid: Annotated[bool, "measure null scores of hybrid searches, which have others"] = False
    concurrency: Annotated[int, typer.Option(help="searches at a time", min=1, max=64)] = 4
    write: Annotated[bool, "have the index's searches use it, or only print it"] = True
    address: ADDRESS = DEFAULT_ADDRESS


@with_options
def calibrate(asked: CalibrateIndexOptions) -> None:
    """Measure what an index's scores mean, and have its searches use it.

    For any served model: fits match probabilities, and takes null scores, with which searches may
    answer that nothing matches (--max-false-answer-rate). Needs queries whose answers are known,
    and the right to administer the index.
    """
    if (asked.queries is None) == (asked.corpus is None):
        raise typer.BadParameter("give --queries or --corpus")
    if asked.queries is not None:
        queries = read_judged_queries(asked.queries)
        if drawn := drawn_from(asked.queries):
            raise ValueError(f"{asked.queries} has only {drawn}; judge a set of all queries")
    else:
        corpus = open_corpus(str(asked.corpus), asked.split, asked.seed, asked.count, LeftOut())
        queries = captioned_queries(corpus)
    chosen = _drawn(queries, asked.query_count)
    access = Access.from_environment()
    with Client(asked.address, access=access, timeout_seconds=_TIMEOUT_SECONDS) as client:
        with query_progress({_STAGE: len(chosen)}, "read the queries") as show:
            done = iter(range(1, len(chosen) + 1))
            measured = measured_scores(
                client,
                chosen,
                index_id=asked.index,
                rerank_k=asked.rerank_k,
                hybrid=asked.hybrid,
                concurrency=asked.concurrency,
                on_answer=lambda: show(_STAGE, next(done)),
            )
        out.rows([_HEADS, *map(_cells, measured)], left=[0, 1])
        if not asked.write:
            out.print(f"index {asked.index} is unchanged; --write has its searches use it")
            return
        client.set_calibrations([each.calibration for each in measured], index_id=asked.index)
    out.print(f"index {asked.index} is calibrated: --min-probability, --max-false-answer-rate")


def _drawn(queries: list[JudgedQuery], count: int) -> list[JudgedQuery]:
    """Returns at most `count` queries of each direction."""
    shuffled = random.Random(1).sample(queries, len(queries))
    by_direction: dict[str, list[JudgedQuery]] = {}
    for each in shuffled:
        by_direction.setdefault(each.direction, []).append(each)
    return [each for direction in by_direction.values() for each in direction[:count]]


_HEADS = [
    *("direction", "scorer", "queries", "null scores", "probability"),
    *("error, all pairs", "first ten", "first"),
    *(f"answered at {rate:.0%}" for rate in _RATES),
]


def _cells(each: MeasuredScores) -> list[str]:
    found, quality = each.calibration, each.quality
    scaling = found.probability_calibration
    shares = [each.answered_share(rate) for rate in _RATES]
    errors = (quality.pool_error, quality.returned_error, quality.first_error) if quality else ()
    return [
        f"{found.query_modality.value} to {found.target_modality.value}",
        found.scorer[:12] + (" hybrid" if found.hybrid else ""),
        f"{found.query_count:,}",
        f"{len(found.null_scores):,}",
        f"sigmoid({scaling.scale:.3f} logit {scaling.bias:+.3f})" if scaling else "",
        *([f"{error:.4f}" for error in errors] or [""] * 3),
        *("too few" if share is None else f"{share:.1%}" for share in shares),
    ]
