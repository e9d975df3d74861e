"""Says how the systems of a golden set differ so far, and how many judgements are missing."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tandem.contract.content import Modality
from tandem.corpus.judged_queries import JudgedQuery
from tandem.lab.evaluation.golden_set import Lists

R_AT_1, RANK = "R@1", "rank"
# The difference that is sought and, before any judgement, the mean square of differences. RANK is
# how often the rank of the first match was halved where the first items differ; on photographs 3
# points of R@1 were 0.2.
_MEASURES: Final = {R_AT_1: (0.03, 0.15), RANK: (0.2, 1.8)}
# At this number of judged queries the assumption has half of the weight.
_ASSUMED_COUNT: Final = 20
# Of the normal distribution: for a two-sided test at 0.05, and for a power of 0.8.
_TEST_Z, _POWER_Z = 1.959964, 0.841621


def needed_query_count(mean_square: float, difference: float) -> int:
    """Returns how many queries find a difference with power 0.8 at p < 0.05, two-sided.

    `mean_square` is of the paired differences; for R@1 it is the discordance, the share of queries
    that one system alone answers. Connor's formula for McNemar's test (Biometrics 43, 1987), which
    is that of a paired test of means: n = ((z1 √s + z2 √(s - d²)) / d)².

    >>> needed_query_count(0.10, 0.03)
    870
    """
    spread = _POWER_Z * math.sqrt(mean_square - difference**2)
    return math.ceil(((_TEST_Z * math.sqrt(mean_square) + spread) / difference) ** 2)


def standings(
    queries: Sequence[JudgedQuery], pool: Lists, runs: Mapping[str, Lists]
) -> Iterator[dict[str, Any]]:
    """Yields how each further system compares with the first, by direction and measure."""
    first, *others = runs
    for target in Modality:
        asked = [each for each in queries if each.target is target]
        for system in others if asked else ():
            for measure in _MEASURES:
                said = {"target": target.value, "system": system, "measure": measure}
                yield said | _standing(asked, pool, (runs[first], runs[system]), measure)


def _standing(
    asked: Sequence[JudgedQuery], pool: Lists, runs: tuple[Lists, Lists], measure: str
) -> dict[str, float]:
    """Returns counts and the difference; those of one first item differ by 0, without judging."""
    differences, unjudged, pair_counts, differing_count = [], [], [], 0
    for each in asked:
        lists = [run[each.query_id] for run in runs]
        if lists[0][:1] == lists[1][:1]:
            continue
        differing_count += 1
        if each.query_id not in pool:
            continue
        firsts = {*lists[0][:1], *lists[1][:1]}
        needed = firsts if measure == R_AT_1 else {*pool[each.query_id]}
        pair_counts.append(len(needed))
        if left := len(needed - each.grades.keys()):
            unjudged.append(left)
        else:
            before, after = (_value(each.relevant_ids, ids, measure) for ids in lists)
            differences.append(after - before)
    share, count = differing_count / len(asked), len(differences)
    sought, assumed_square = _MEASURES[measure]
    mean = share * statistics.fmean(differences or [0.0])
    squares = share * sum(each**2 for each in differences)
    assumed = _ASSUMED_COUNT * assumed_square * (share > 0)
    # Shares that differ by d have a discordance of d or more; means have a mean square of d².
    least = sought if measure == R_AT_1 else sought**2
    square = max(least, (squares + assumed) / (count + _ASSUMED_COUNT))
    needed_count = needed_query_count(square, sought)
    missing_count = max(0, math.ceil(share * needed_count) - count)
    further_count = max(0, missing_count - len(unjudged))
    variance = max(0.0, squares / count - mean**2) if count > 1 else math.inf
    return {
        "query_count": len(asked),
        "differing_count": differing_count,
        "judged_count": count,
        "difference": mean,
        "half_interval": _TEST_Z * math.sqrt(variance * share / max(1, count)),
        "sought_difference": sought,
        "needed_query_count": needed_count,
        "missing_judgement_count": sum(unjudged[:missing_count])
        + math.ceil(further_count * statistics.fmean(pair_counts or [0])),
    }


def _value(relevant_ids: frozenset[str], ids: Sequence[str], measure: str) -> float:
    # A match that the list does not contain gets the rank after the last.
    rank = next((n for n, each in enumerate(ids, start=1) if each in relevant_ids), len(ids) + 1)
    if measure == R_AT_1:
        return float(rank == 1)
    return -math.log2(rank) if relevant_ids else 0.0
