"""How often queries without an answer get one, against what was promised.

    python -m benchmarks.bench.abstention --checkpoint CHECKPOINT [--corpus flickr8k/dataset.json]
        [--split val] [--count 2000] [--captions 1] [--draws 50] [--scores FILE]

A random half of a corpus's pictures and captions is the index. The queries of the other half have
no answer in it: strangers. Null scores are of queries of the index's half, their answers taken out,
as `tandem calibrate` takes them out. In each of the draws a random half of those queries gives
null scores, and the other half is searched with its answers there. Scores are computed once (kept
in FILE), and thresholds are those of the product.

Each query is also asked with a random filter of its own, which leaves its answers and a share of
the other items. "any candidate" is the cross-encoder without the product's rule for filters: that
an item counts only among the first candidates of the search without one.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.cli.corpora.corpora import open_corpus
from tandem.contract.modality import Modality
from tandem.contract.search.score_calibration import MAX_NULL_SCORE_COUNT, ScoreCalibration
from tandem.corpus.left_out import LeftOut
from tandem.lab.evaluation.gallery import DIRECTIONS, languages_of, make_gallery
from tandem.lab.evaluation.offline import OfflineGallery
from tandem.lab.evaluation.ranking import retrieve_order
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint

RERANK_K = 20
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
SCORERS = ("cross-encoder", "any candidate", "bi-encoder")
SHARES = (1.0, 0.5, 0.1, 0.01)
"""Of the items, that a filter leaves."""

Floats = NDArray[np.float32]


def main() -> None:
    """Prints a line of JSON, and tables."""
    arguments = _arguments()
    found = _scores(arguments)
    rows = [
        row
        for direction in DIRECTIONS
        for share in SHARES
        for scorer in SCORERS
        for row in _rows(found, direction, share, scorer, arguments.draws)
    ]
    print(json.dumps({"benchmark": "abstention", "rows": rows}))
    print(
        "\n| direction | filter leaves | scorer | strangers | null scores | promised | false "
        "| 95 % of draws | expected | within | answered | right first, of those |"
    )
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: | ---: |")
    for row in rows:
        low, high = row["interval"]
        least, most = row["expected"]
        print(
            f"| {row['direction']} | {row['share']:.0%} | {row['scorer']} | {row['strangers']} "
            f"| {row['null_scores']} "
            f"| {row['rate']:.0%} | {row['false']:.2%} | {low:.2%} to {high:.2%} "
            f"| {least:.2%} to {most:.2%} | {row['within']:.0%} | {row['answered']:.1%} "
            f"| {row['right']:.1%} |"
        )
    print("\n| direction | AUROC of logits | AUROC of similarities |\n| --- | ---: | ---: |")
    for direction in DIRECTIONS:
        areas = [_area(found, direction, scorer) for scorer in ("cross-encoder", "bi-encoder")]
        print(f"| {direction} | {areas[0]:.4f} | {areas[1]:.4f} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=default_checkpoint())
    parser.add_argument("--corpus", default="scenes")
    parser.add_argument("--split", default="test")
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--captions", type=int, default=1)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scores", type=Path, help="file of scores, written or read")
    return parser.parse_args()


def _scores(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Returns by direction and scorer each query's best score without and with its answers."""
    if arguments.scores and arguments.scores.exists():
        return dict(np.load(arguments.scores))
    records = list(open_corpus(arguments.corpus, arguments.split, 1, arguments.count, LeftOut()))[
        : arguments.count
    ]
    gallery = make_gallery(records, languages_of(records)[:1], arguments.captions)
    encoded = OfflineGallery(load_checkpoint(arguments.checkpoint), gallery)
    random = np.random.default_rng(arguments.seed)
    is_in_R = random.permutation(len(records)) < len(records) // 2
    picture_of_text = np.repeat(
        np.arange(len(records)), [len(captions) for _, captions in gallery.chosen]
    )
    of_items = {Modality.IMAGE: np.arange(len(records)), Modality.TEXT: picture_of_text}
    found: dict[str, Any] = {}
    for name, target in DIRECTIONS.items():
        items_M, queries_Q = of_items[target], of_items[target.other]
        similarity_QM = encoded.similarity(target).copy()
        is_item_M = is_in_R[items_M]
        similarity_QM[:, ~is_item_M] = -np.inf
        wanted = [
            gallery.answers(target)[q] | gallery.matches(target)[q] for q in range(len(queries_Q))
        ]
        found[f"{name}/is_stranger"] = ~is_in_R[queries_Q]
        # A stranger's caption may be true of another picture that is there.
        found[f"{name}/has_answer"] = np.array(
            [bool(is_item_M[list(each)].any()) for each in wanted]
        )
        found[f"{name}/picture"] = queries_Q
        is_wanted_QM = np.zeros(similarity_QM.shape, bool)
        for q, each in enumerate(wanted):
            is_wanted_QM[q, list(each)] = True
        first_QK = _pools(encoded, target, similarity_QM, RERANK_K)
        is_first_QM = np.zeros(similarity_QM.shape, bool)
        np.put_along_axis(is_first_QM, first_QK, True, axis=1)
        for share in SHARES:
            is_left_QM = (random.random(similarity_QM.shape) < share) | is_wanted_QM
            left_QM = np.where(is_left_QM, similarity_QM, -np.inf)
            pool_QK = _pools(encoded, target, left_QM, RERANK_K + max(map(len, wanted)))
            pooled_QK = np.take_along_axis(left_QM, pool_QK, axis=1)
            is_wanted_QK = np.take_along_axis(is_wanted_QM, pool_QK, axis=1)
            is_first_QK = np.take_along_axis(is_first_QM, pool_QK, axis=1)
            # A pool that is shorter has its first item again, which is scored once.
            scored_QK = np.where(pooled_QK == -np.inf, pool_QK[:, :1], pool_QK)
            any_QK = encoded._pool_logits(  # noqa: SLF001
                target, range(len(queries_Q)), scored_QK, lambda _: None
            )
            any_QK = np.where(pooled_QK == -np.inf, -np.inf, any_QK)
            # Null scores are of the pool without the answers: the others in it are counted too.
            counted_QK = any_QK if share == 1.0 else np.where(is_first_QK, any_QK, -np.inf)
            for scorer, values_QK in zip(SCORERS, (counted_QK, any_QK, pooled_QK), strict=True):
                of_scorer = _best(values_QK, is_wanted_QK)
                found |= {f"{name}/{share}/{scorer}/{k}": each for k, each in of_scorer.items()}
    if arguments.scores:
        np.savez(arguments.scores, **found)
    return found


def _pools(
    encoded: OfflineGallery, target: Modality, similarity_QM: Floats, k: int
) -> NDArray[np.int64]:
    return retrieve_order(similarity_QM, encoded._gallery.tie_order(target))[:, :k]  # noqa: SLF001


def _best(values_QK: Floats, is_wanted_QK: NDArray[np.bool_]) -> Mapping[str, Any]:
    """Returns the best score without the answers, with them, and whether one of them has it."""
    # The pool without the answers: the first others.
    place_QK = np.cumsum(~is_wanted_QK, axis=1)
    others_QK = np.where(~is_wanted_QK & (place_QK <= RERANK_K), values_QK, -np.inf)
    whole_QK = values_QK[:, :RERANK_K]
    first_Q1 = whole_QK.argmax(axis=1)[:, None]
    return {
        "null": others_QK.max(axis=1).astype(np.float32),
        "best": whole_QK.max(axis=1).astype(np.float32),
        "right": np.take_along_axis(is_wanted_QK, first_Q1, axis=1)[:, 0],
    }


def _rows(
    found: Mapping[str, Any], direction: str, share: float, scorer: str, draw_count: int
) -> Iterator[Mapping[str, Any]]:
    picture, has_answer = found[f"{direction}/picture"], found[f"{direction}/has_answer"]
    is_stranger = found[f"{direction}/is_stranger"] & ~has_answer
    is_known = ~found[f"{direction}/is_stranger"] & has_answer
    null = found[f"{direction}/1.0/{scorer}/null"]
    filtered, best, right = (
        found[f"{direction}/{share}/{scorer}/{name}"] for name in ("null", "best", "right")
    )
    strangers = filtered[is_stranger]
    for rate in RATES:
        random = np.random.default_rng(7)
        false, answered, correct, within = [], [], [], []
        for _ in range(draw_count):
            pictures = np.unique(picture[is_known])
            calibrating = random.choice(pictures, len(pictures) // 2, replace=False)
            # Captions of one picture are no independent queries: one of each calibrates.
            is_calibrating = is_known & np.isin(picture, calibrating)
            numbers = random.permutation(np.flatnonzero(is_calibrating))
            _, first = np.unique(picture[numbers], return_index=True)
            scores = null[numbers[first]][:MAX_NULL_SCORE_COUNT]
            count = len(scores)
            if count + 1 < 1 / rate:
                break
            threshold = ScoreCalibration(
                model_fingerprint="",
                query_modality=Modality.TEXT,
                target_modality=Modality.IMAGE,
                null_scores=tuple(sorted(map(float, scores))),
            ).threshold(rate)
            is_asked = is_known & ~np.isin(picture, calibrating)
            is_shown = best[is_asked] > threshold
            false.append(float((strangers > threshold).mean()))
            answered.append(float(is_shown.mean()))
            correct.append(float(right[is_asked][is_shown].mean()) if is_shown.any() else math.nan)
            stranger_count = len(np.unique(picture[is_stranger]))
            expected = _expected(rate, count, stranger_count)
            within.append(expected[0] <= false[-1] <= expected[1])
        if not false:
            continue
        yield {
            "direction": direction,
            "share": share,
            "scorer": scorer,
            "strangers": len(strangers),
            "null_scores": count,
            "rate": rate,
            "false": float(np.mean(false)),
            "interval": [float(each) for each in np.quantile(false, (0.025, 0.975))],
            "expected": expected,
            "within": float(np.mean(within)),
            "answered": float(np.mean(answered)),
            "right": float(np.nanmean(correct)),
        }


def _expected(rate: float, null_count: int, query_count: int) -> tuple[float, float]:
    """Returns the 95 % interval of measured rates, if the promise holds: a beta-binomial one."""
    random = np.random.default_rng(3)
    above = math.floor(rate * (null_count + 1) + 1e-9)
    chances = random.beta(above, null_count + 1 - above, 20_000)
    measured = random.binomial(query_count, chances) / query_count
    low, high = np.quantile(measured, (0.025, 0.975))
    return float(low), float(high)


def _area(found: Mapping[str, Any], direction: str, scorer: str) -> float:
    """Returns the chance that a query with an answer scores higher than a stranger."""
    has_answer, is_outside = found[f"{direction}/has_answer"], found[f"{direction}/is_stranger"]
    best, null = (found[f"{direction}/1.0/{scorer}/{each}"] for each in ("best", "null"))
    known, strangers = best[~is_outside & has_answer], np.sort(null[is_outside & ~has_answer])
    below = np.searchsorted(strangers, known, "left") + np.searchsorted(strangers, known, "right")
    return float(below.mean() / 2 / len(strangers))


if __name__ == "__main__":
    main()
