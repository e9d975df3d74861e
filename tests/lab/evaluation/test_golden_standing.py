"""How many judgements are missing: by hand, and as often as the formula says."""

import math

import numpy as np
import pytest

from tandem.contract.content import Modality
from tandem.corpus.judged_queries import JudgedQuery
from tandem.lab.evaluation.golden_standing import needed_query_count, standings
from tandem.lab.evaluation.metrics import paired_p_value

POOL = {f"q{n}": ["a", "b", "c"] for n in range(4)}
# They give q0 the same list, q1 another first item, q2 and q3 another order behind the first.
RUNS = {
    "be": {"q0": ["a", "b"], "q1": ["a", "b"], "q2": ["a", "b"], "q3": ["c", "a"]},
    "ce": {"q0": ["a", "b"], "q1": ["b", "a"], "q2": ["a", "c"], "q3": ["c", "b"]},
}


def query(number: int, **grades: int) -> JudgedQuery:
    """Returns a query that finds images."""
    return JudgedQuery(f"q{number}", "text", Modality.IMAGE, grades)


def test_judgements_are_counted_where_systems_differ() -> None:
    """Only at q1 do the first items differ: R@1 needs two judgements there, rank the pool."""
    nothing = [query(n) for n in range(4)]
    judged = [query(0), query(1, a=0, b=1, c=0), query(2, a=0, b=0, c=1), query(3, a=0, b=1)]

    r_at_1, rank = standings(judged, POOL, RUNS)
    fresh_r_at_1, fresh_rank = standings(nothing, POOL, RUNS)

    assert (fresh_r_at_1["judged_count"], r_at_1["judged_count"]) == (0, 1)
    assert r_at_1["differing_count"] == 1
    assert r_at_1["difference"] == 1 / 4
    # q1 rises from 2 to 1.
    assert rank["difference"] == 1 / 4
    assert [rank["judged_count"], rank["differing_count"]] == [1, 1]
    # Before any judgement: 0.15 of discordance, of which a quarter of the queries differ.
    assert fresh_r_at_1["needed_query_count"] == needed_query_count(0.15, 0.03) == 1306
    assert fresh_r_at_1["missing_judgement_count"] == 2 * math.ceil(1306 / 4)
    assert fresh_rank["missing_judgement_count"] == 3 * math.ceil(
        1 / 4 * fresh_rank["needed_query_count"]
    )


def test_drawn_queries_stand_for_all_that_differ() -> None:
    """Half of those that differ were drawn; the difference is one of all queries, unbiased."""
    chance = np.random.default_rng(4)
    kinds = chance.permutation(np.repeat([0, 1, 2, 3], [500, 60, 40, 200]))
    runs = {
        name: {f"q{n}": ["a" if kind in own else name] for n, kind in enumerate(kinds)}
        for name, own in (("be", (0, 1)), ("ce", (0, 2)))
    }
    differing = [n for n, kind in enumerate(kinds) if kind]
    found = []
    for _ in range(200):
        drawn = {*chance.choice(differing, 150, replace=False).tolist()}
        queries = [query(n, a=1, be=0, ce=0) if n in drawn else query(n) for n in range(800)]
        pool = {f"q{n}": ["a", "be", "ce"] for n in drawn}
        found.append(next(standings(queries, pool, runs)))

    assert {(each["differing_count"], each["judged_count"]) for each in found} == {(300, 150)}
    differences = [each["difference"] for each in found]
    # 40 rise and 60 fall, of 800.
    assert np.mean(differences) == pytest.approx(-20 / 800, abs=0.003)
    assert np.std(differences) < found[0]["half_interval"] / 1.96


def test_equal_systems_need_no_judgement() -> None:
    """Nothing is judged, and nothing can be found."""
    for each in standings([query(n) for n in range(4)], POOL, {"a": RUNS["be"], "b": RUNS["be"]}):
        assert each["missing_judgement_count"] == each["differing_count"] == 0
        assert each["difference"] == 0.0


@pytest.mark.parametrize("discordance", [0.04, 0.10, 0.20])
def test_the_needed_queries_have_the_power(discordance: float) -> None:
    """McNemar's exact test finds 3 points in about 80 % of 1,000 draws of so many queries."""
    count = needed_query_count(discordance, 0.03)
    draws = np.random.default_rng(1).multinomial(
        count,
        [(discordance + 0.03) / 2, (discordance - 0.03) / 2, 1 - discordance],
        size=1_000,
    )

    found = [paired_p_value([1] * up + [0] * down, [0] * up + [1] * down) for up, down, _ in draws]

    # The exact test is a little conservative.
    assert 0.74 < np.mean([p < 0.05 for p in found]) < 0.84
