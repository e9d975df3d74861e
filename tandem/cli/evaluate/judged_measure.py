"""Measures served indexes, as they stand, by judged queries."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.evaluate.served_measure import asked_reports
from tandem.client import Access, Client, StoredItem
from tandem.corpus.judged_queries import JudgedQuery, drawn_from, read_judged_queries
from tandem.lab.evaluation.gallery import Direction, EvaluationQuery
from tandem.lab.evaluation.reports.report import OF_THEM_ONLY, Report

_SHOWN_COUNT = 3


def judged_reports(asked: EvaluateOptions, index_ids: Sequence[str], path: Path) -> list[Report]:
    """Returns a report of the queries that have an answer, for each index.

    Raises the errors of read_judged_queries and of searches, and ValueError if no query has an
    answer, or an index lacks items that answer or ask, which would only look like a bad model.
    """
    queries = read_judged_queries(path)
    answered = [each for each in queries if each.relevant_ids]
    if not answered:
        raise ValueError(f"{path} has no query with a relevant item; judge some")
    for index_id in index_ids:
        _check_stored(asked.address, index_id, answered)
    about = {
        "title": f"judged queries of {path.name}",
        "corpus": str(path),
        "corpus digest": _digest(answered),
        "judged queries": f"{len(answered):,} of {len(queries):,}, which have an answer",
        "concurrency": asked.concurrency,
    }
    if drawn := drawn_from(path):
        about[OF_THEM_ONLY] = f"{drawn}, whose figures are not those of all queries"
    asking = asked_reports(asked, index_ids, _directions(answered), asked.pool_sizes, about)
    return [
        replace(each, about={**each.about, "index": index_id})
        for index_id, each in zip(index_ids, asyncio.run(asking), strict=True)
    ]


def _directions(queries: Iterable[JudgedQuery]) -> list[Direction]:
    by_name: dict[str, list[JudgedQuery]] = {}
    for each in queries:
        by_name.setdefault(each.direction, []).append(each)
    return [
        Direction(name, [""] * len(of_one), partial(_asked, of_one))
        for name, of_one in by_name.items()
    ]


def _asked(queries: Iterable[JudgedQuery]) -> Iterator[EvaluationQuery]:
    for each in queries:
        yield EvaluationQuery(each.sent(), each.target, each.grades)


def _digest(queries: Iterable[JudgedQuery]) -> str:
    """Returns a digest of all that was asked and judged, pictures included."""
    digest = sha256()
    for each, query in zip(queries, _asked(queries), strict=True):
        content = query.query
        shown = sha256(content).hexdigest() if isinstance(content, bytes) else str(content)
        grades = sorted(each.grades.items())
        line = [each.query_id, shown, each.target.value, grades]
        digest.update(json.dumps(line).encode() + b"\n")
    return digest.hexdigest()[:16]


def _check_stored(address: str, index_id: str, queries: Iterable[JudgedQuery]) -> None:
    wanted = {item_id for each in queries for item_id in each.relevant_ids}
    wanted |= {each.content.item_id for each in queries if isinstance(each.content, StoredItem)}
    count = len(wanted)
    with Client(address, access=Access.from_environment()) as client:
        wanted.difference_update(each.item_id for each in client.list_items(index_id=index_id))
    if wanted:
        first = ", ".join(map(repr, sorted(wanted)[:_SHOWN_COUNT]))
        raise ValueError(
            f"index {index_id} lacks {len(wanted):,} of {count:,} judged items ({first}): no model "
            "can find them; store them, or take them out of the judgements"
        )
