"""Holds the metrics to other people's programs: trec_eval and scipy.

`make test-references` installs both next to the environment, and .ci/run runs it.
"""

import random
from collections.abc import Mapping, Sequence

import pytest

from tandem.lab.evaluation.metrics import (
    Recall,
    mean_average_precision,
    mean_reciprocal_rank,
    ndcg,
    paired_p_value,
    recall_at,
)
from tandem.lab.evaluation.reports.spread import t_quantile

ITEM_COUNT = 40
CASES: Sequence[tuple[str, int]] = [("one answer", 1), ("five captions", 5), ("any match", 25)]

Figures = Mapping[str, float]


def drawn(answer_count: int) -> list[tuple[int, ...]]:
    """Returns the ranks of as many answers or fewer, of 60 queries over 40 items."""
    rng = random.Random(answer_count)
    counts = [rng.randint(1, answer_count) for _ in range(60)]
    return [tuple(sorted(rng.sample(range(1, ITEM_COUNT + 1), count))) for count in counts]


def judged(queries: Sequence[tuple[int, ...]]) -> dict[str, dict[str, int]]:
    """Returns which items are relevant; an item is named by its rank."""
    return {str(q): {f"item-{rank}": 1 for rank in ranks} for q, ranks in enumerate(queries)}


def scored(queries: Sequence[tuple[int, ...]]) -> dict[str, dict[str, float]]:
    items = {f"item-{rank}": float(ITEM_COUNT - rank) for rank in range(1, ITEM_COUNT + 1)}
    return {str(q): items for q in range(len(queries))}


def of_trec_eval(queries: Sequence[tuple[int, ...]]) -> Figures:
    trec = pytest.importorskip("pytrec_eval")
    names = {"map": "map", "ndcg_cut_10": "ndcg", "recip_rank": "mrr", "success_5": "hits"}
    of_each = trec.RelevanceEvaluator(judged(queries), set(names)).evaluate(scored(queries))
    return {
        ours: sum(each[theirs] for each in of_each.values()) / len(queries)
        for theirs, ours in names.items()
    }


@pytest.mark.parametrize(("case", "answer_count"), CASES)
def test_metrics_of_orders_agree(case: str, answer_count: int) -> None:
    """NDCG, MAP and MRR do, and R@5 is their success or hit rate, not their recall of answers."""
    queries = drawn(answer_count)
    best = [ranks[0] for ranks in queries]

    ours = {
        "map": mean_average_precision(queries),
        "ndcg": ndcg(queries, 10),
        "mrr": mean_reciprocal_rank(best),
        "hits": recall_at(best, 5).percent / 100,
    }

    assert of_trec_eval(queries) == pytest.approx(ours, abs=1e-9), case
    if answer_count > 1:  # positive control: only the best answer gives another figure
        only_best = [(rank,) for rank in best]
        assert abs(mean_average_precision(only_best) - ours["map"]) > 0.01
        assert abs(ndcg(only_best, 10) - ours["ndcg"]) > 0.01


@pytest.mark.parametrize(("hit_count", "query_count"), [(0, 9), (3, 9), (81, 263), (40, 40)])
def test_intervals_are_scipys(hit_count: int, query_count: int) -> None:
    stats = pytest.importorskip("scipy.stats")

    wilson = stats.binomtest(hit_count, query_count).proportion_ci(method="wilson")

    ours = Recall(1, hit_count, query_count).interval_percent
    assert ours == pytest.approx((100 * wilson.low, 100 * wilson.high), abs=1e-4)


def test_the_paired_test_is_scipys() -> None:
    """McNemar's exact test is a binomial test, and over seeds a test of all signs."""
    stats = pytest.importorskip("scipy.stats")
    numpy = pytest.importorskip("numpy")
    rng = random.Random(4)
    one = [rng.random() < 0.6 for _ in range(200)]
    other = [rng.random() < 0.7 for _ in range(200)]
    only_one = sum(a > b for a, b in zip(one, other, strict=True))
    only_other = sum(a < b for a, b in zip(one, other, strict=True))
    seeds_a, seeds_b = ([rng.randint(0, 3) for _ in range(12)] for _ in range(2))

    of_one = stats.binomtest(only_one, only_one + only_other, 0.5).pvalue
    of_seeds = stats.permutation_test(
        (numpy.array(seeds_a), numpy.array(seeds_b)),
        lambda a, b: (a - b).sum(),
        permutation_type="samples",
        n_resamples=numpy.inf,
    ).pvalue

    assert paired_p_value(one, other) == pytest.approx(of_one, rel=1e-9)
    assert paired_p_value(seeds_a, seeds_b) == pytest.approx(of_seeds, rel=1e-9)
    assert of_one < 1
    assert of_seeds < 1


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 10, 99])
def test_quantiles_of_t_are_scipys(freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")

    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-7)
