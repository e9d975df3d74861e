"""Chooses how much the cosine counts in a matcher's score, on half of a split, and tests the other.

    python -m benchmarks.runs.cosine_weight CHECKPOINT [--split test_style] [--count 2000]
        [--rerank-k 20] [--seed 1]

Training chooses the weight on the recipe's dev pictures (`tandem/training/matcher_stage.py`). Where
those are of another kind than what is searched, as the emoji's dev concepts are unseen and a
dictionary's are known, that weight is too low. Half of the split's concepts, drawn by the seed,
choose the weight of the best R@1; the p-value is of the other half (exact McNemar test). Prints a
table. Shapes: Q queries, K pool.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tandem.corpus.emoji import emoji_records
from tandem.evaluation.gallery import DIRECTIONS, Gallery, make_gallery
from tandem.evaluation.metrics import paired_p_value
from tandem.evaluation.offline import OfflineGallery
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.two_towers import TwoTowers

_WEIGHTS = (0, 8, 16, 24, 32, 40, 50, 60, 80, 100, 130, 170, 250, 400)

Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MatchedPools:
    """Holds one direction's pools: the matcher's own logit and the cosine of each candidate."""

    own_logits: Floats
    """[Q, K], without the cosine."""
    cosines: Floats
    """[Q, K], falling."""
    are_answers: Flags
    """[Q, K]."""
    families: tuple[str, ...]
    """Of each query's picture, Q of them."""

    def hits(self, cosine_weight: float) -> Flags:
        """Returns for each query whether an answer is first; of equal scores the nearer item is."""
        scores_QK = self.own_logits + cosine_weight * self.cosines
        first_Q = np.argsort(-scores_QK, axis=1, kind="stable")[:, 0]
        return self.are_answers[np.arange(len(first_Q)), first_Q]

    def retrieved_hits(self) -> Flags:
        """Returns the same of the bi-encoder's order."""
        return self.are_answers[:, 0]


def choosing_half(families: tuple[str, ...], seed: int) -> Flags:
    """Returns which queries choose the weight: those of half of the families, [Q]."""
    names = sorted(set(families))
    random.Random(seed).shuffle(names)
    chosen = set(names[: len(names) // 2])
    return np.array([family in chosen for family in families])


def best_weight(pools: MatchedPools, choosing_Q: Flags) -> float:
    """Returns the smallest weight with the most hits among the choosing queries."""
    return max(_WEIGHTS, key=lambda weight: (int(pools.hits(weight)[choosing_Q].sum()), -weight))


def main() -> None:
    """Prints R@1 of each half by weight, and the test of the chosen one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "--split", default="test_style", choices=["val_style", "test_style", "test"]
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rerank-k", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    gallery = make_gallery(
        islice(emoji_records(options.split), options.count), ["en"], any_match=True
    )
    for name, pools in _pools(options.checkpoint, gallery, options.rerank_k).items():
        print(_table(name, pools, options.seed))


def _pools(folder: Path, gallery: Gallery, k: int) -> dict[str, MatchedPools]:
    checkpoint = load_checkpoint(folder)
    encoder = checkpoint.model.joint_encoder
    if not isinstance(encoder, TwoTowers):
        raise SystemExit(f"{folder} has no matcher: give a checkpoint of two towers")
    trained_weight = float(encoder.pair.cosine_weight)
    print(f"the checkpoint's own weight: {trained_weight:.3g}")
    offline = OfflineGallery(checkpoint, gallery)
    found = {}
    for name, target in DIRECTIONS.items():
        scored = offline.score(target, k)
        candidates_QK = scored.retrieved[:, :k]
        cosines_QK = np.take_along_axis(scored.similarity, candidates_QK, axis=1)
        answers = gallery.answers(target)
        found[name] = MatchedPools(
            scored.logits - trained_weight * cosines_QK,
            cosines_QK,
            np.array([[item in answers[q] for item in row] for q, row in enumerate(candidates_QK)]),
            tuple(record.family for record, _ in gallery.chosen[: len(candidates_QK)]),
        )
    return found


def _table(name: str, pools: MatchedPools, seed: int) -> str:
    choosing_Q = choosing_half(pools.families, seed)
    testing_Q = ~choosing_Q
    retrieved_Q = pools.retrieved_hits()
    lines = [
        f"\n{name}: {choosing_Q.sum()} queries choose, {testing_Q.sum()} test",
        "weight  R@1 choosing  R@1 testing  won  lost  p",
        f"    BE  {_percent(retrieved_Q[choosing_Q])}  {_percent(retrieved_Q[testing_Q])}",
    ]
    chosen = best_weight(pools, choosing_Q)
    for weight in _WEIGHTS:
        hits_Q = pools.hits(weight)
        test_Q, before_Q = hits_Q[testing_Q], retrieved_Q[testing_Q]
        won, lost = (test_Q & ~before_Q).sum(), (before_Q & ~test_Q).sum()
        p = paired_p_value(test_Q.astype(int).tolist(), before_Q.astype(int).tolist())
        lines.append(
            f"{weight:6}  {_percent(hits_Q[choosing_Q])}  {_percent(test_Q)}  {won:3}  {lost:4}  "
            f"{p:.2g}{'  chosen' if weight == chosen else ''}"
        )
    return "\n".join(lines)


def _percent(hits: Flags) -> str:
    return f"{100 * hits.mean():12.1f}"


if __name__ == "__main__":
    main()
