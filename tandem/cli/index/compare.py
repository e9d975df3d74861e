"""Implements `tandem index compare`, which says whether one index may replace another."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.evaluate.compare import (
    GATE_STATUS,
    print_comparison,
    print_refusals,
    print_served,
)
from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.evaluate.judged_measure import judged_reports
from tandem.cli.options import ADDRESS, DEFAULT_ADDRESS
from tandem.cli.terminal.json_answer import with_json
from tandem.client import Access, Client, Modality
from tandem.corpus.judged_queries import read_judged_queries
from tandem.lab.evaluation.gate import GateRefusal, gate_verdict

QUERIES = Annotated[Path, typer.Option(help="judged queries: a folder or a .jsonl file")]


@with_json
def compare(
    serving: Annotated[str, typer.Argument(help="index id that serves, for example photos")],
    candidate: Annotated[str, typer.Argument(help="index id to replace it, such as photos@2")],
    queries: QUERIES,
    k: Annotated[
        int | None, typer.Option("--rerank-k", min=0, help="pool size to rerank; 0 for none")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="searches at once", min=1)] = 8,
    address: ADDRESS = DEFAULT_ADDRESS,
) -> None:
    """Compare two indexes of the same items by judged queries.

    Exits with 3 if the second is worse, as tandem evaluate --gate does.
    """
    asked = EvaluateOptions(k=None if k is None else [k], concurrency=concurrency, address=address)
    if compared(asked, serving, candidate, queries):
        raise typer.Exit(GATE_STATUS)


def compared(
    asked: EvaluateOptions, serving: str, candidate: str, queries: Path
) -> list[GateRefusal]:
    """Measures both, prints the comparison, and returns why the candidate may not replace."""
    index_ids = [serving, candidate]
    read_judged_queries(queries)  # what is wrong with them is said before a server is asked
    with Client(asked.address, access=Access.from_environment()) as client:
        before_count = _item_count(client, serving)
        reports = judged_reports(asked, index_ids, queries)
        count, serving_count = (_item_count(client, each) for each in (candidate, serving))
    if min(before_count, serving_count) <= count <= max(before_count, serving_count):
        serving_count = count  # A generation follows one that is being written.
    refusals = gate_verdict(reports[1], reports[0], count, serving_count)
    by_index = dict(zip(index_ids, reports, strict=True))
    print_comparison({name: [each] for name, each in by_index.items()}, refusals)
    print_served(by_index)
    print_refusals(refusals, f"{candidate} may replace {serving}")
    return refusals


def _item_count(client: Client, index_id: str) -> int:
    found = client.describe_index(index_id=index_id, full_coverage_required=True)
    return sum(map(found.item_count, Modality))
