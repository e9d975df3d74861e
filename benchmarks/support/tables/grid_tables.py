"""What train_grid.py found, as Markdown: recall over the seeds, each seed, and by language."""

from collections.abc import Iterable, Mapping, Sequence

from tandem.lab.evaluation.reports.comparison import ComparedOrder, compare
from tandem.lab.evaluation.reports.report import BE, Report
from tandem.lab.evaluation.reports.spread import Spread

Reports = Mapping[str, Sequence[Report]]
"""Of each system, one a seed; the first system is what the others are held against."""

_RERANKED = "BE + CE 20"
"""What is shown by seed and by language, where a question has it."""


def recall_table(reports: Reports) -> str:
    """Returns R@1 by order: each direction and system a column, mean ± deviation over the seeds.

    Behind each system but the first, how likely chance alone parts it from that one.
    """
    compared: dict[tuple[str, str], list[ComparedOrder]] = {}
    for each in compare(reports):
        compared.setdefault((each.order_by, each.direction), []).append(each)
    directions = list(dict.fromkeys(direction for _, direction in compared))
    head = ["order by"]
    for direction in directions:
        for number, system in enumerate(reports):
            head.append(system if number else f"{direction}: {system}")
            head += ["p"] if number else []
    rows = []
    for order_by in dict.fromkeys(order_by for order_by, _ in compared):
        row = [order_by]
        for direction in directions:
            for number, each in enumerate(compared[order_by, direction]):
                row.append(str(each.recall_at_1))
                row += [f"{each.p_value:.2g}"] if number else []
        rows.append(row)
    return _table(head, rows)


def seed_table(reports: Reports, seeds: Sequence[int]) -> str:
    """Returns R@1 of each system and seed with 95 % Wilson intervals, and mR and rSum.

    By BE and by what is shown of reranking; nothing where a question has other orders.
    """
    first = next(iter(reports.values()))[0]
    orders = [each for each in (BE, _RERANKED) if each in first.orders()]
    if len(orders) < 2:
        return ""
    directions = list(first.languages)
    head = ["system, seed"]
    head += [f"{direction}: {order_by}" for direction in directions for order_by in orders]
    head += [f"{summary} {order_by}" for summary in ("mR", "rSum") for order_by in orders]
    rows = []
    for system, of_system in reports.items():
        for seed, report in zip(seeds, of_system, strict=True):
            row = [f"{system} {seed}"]
            for direction in directions:
                for order_by in orders:
                    recall, *_ = report.ranking(direction, order_by).recalls
                    low, high = recall.interval_percent
                    row.append(f"{recall.percent:.1f} ({low:.1f}–{high:.1f})")
            summaries = {order_by: both for order_by, *both in report.summaries()}
            row += [f"{summaries[order_by][0]:.1f}" for order_by in orders]
            row += [f"{summaries[order_by][1]:.1f}" for order_by in orders]
            rows.append(row)
    return _table(head, rows)


def language_table(reports: Reports) -> str:
    """Returns R@1 of reranking by language; nothing where a question has other orders."""
    first = next(iter(reports.values()))[0]
    if _RERANKED not in first.orders():
        return ""
    languages = sorted({each for of_one in first.languages.values() for each in of_one})
    rows = []
    for direction in first.languages:
        for system, of_system in reports.items():
            row = [direction, system]
            for language in languages:
                recalls = (
                    report.of_language(report.ranking(direction, _RERANKED), language).recalls[0]
                    for report in of_system
                )
                row.append(str(Spread(tuple(recall.percent for recall in recalls))))
            rows.append(row)
    table = _table(["direction", "system", *languages], rows, text_column_count=2)
    return f"R@1 of {_RERANKED} by language:\n\n{table}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], text_column_count: int = 1) -> str:
    rule = ["---"] * text_column_count + ["---:"] * (len(head) - text_column_count)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
