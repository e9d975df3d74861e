"""How far recall moves by which pictures a smaller gallery has: COCO's 1k as folds or as one part.

    python -m benchmarks.bench.folds dev_a.neighbours dev_b.neighbours --folds 5 --draws 200

The files are of `tandem neighbours build`, of one model; their pictures become one gallery. It is
divided at random into folds of the same size, again and again. Each fold is searched alone, and the
recall of a draw is the mean over its folds, as for COCO's five folds of 1,000. A first fold alone
is what a fixed part of 1,000 pictures gives. Nothing is trained or embedded, so the spread is of
the drawing alone.

Shapes: I pictures, T captions.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandem.evaluation.metrics import RECALL_AT
from tandem.neighbours.corpus_neighbours import CorpusNeighbours
from tandem.neighbours.neighbour_file import NeighbourManifest, check_same_base, load_neighbours

DIRECTIONS: Final = ("image→text", "text→image")
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """Holds a gallery's similarities."""

    scores: NDArray[np.float64]
    """[I, T]."""
    image_of_text: Numbers
    """[T]."""

    def recalls(self, pictures: Numbers) -> tuple[float, ...]:
        """Returns R@1, R@5 and R@10 in percent of both directions, among these pictures alone.

        An equal score of another item counts as above the answer, so ties never help.
        """
        texts = np.flatnonzero(np.isin(self.image_of_text, pictures))
        scores = self.scores[np.ix_(pictures, texts)]
        is_own = self.image_of_text[texts] == pictures[:, np.newaxis]
        best_own = np.where(is_own, scores, -np.inf).max(axis=1, keepdims=True)
        image_ranks = ((scores >= best_own) & ~is_own).sum(axis=1)
        own = scores[np.argmax(is_own, axis=0), np.arange(len(texts))]
        text_ranks = ((scores >= own) & ~is_own).sum(axis=0)
        return tuple(
            100 * float(np.mean(ranks < k))
            for ranks in (image_ranks, text_ranks)
            for k in RECALL_AT
        )


def joined(parts: Sequence[CorpusNeighbours]) -> Similarities:
    """Returns the similarities of all parts' pictures and captions as one gallery's.

    Pools of a cross-encoder are of one part, so the bi-encoder's similarities are taken.
    """
    images, texts = (
        np.concatenate([getattr(each, name) for each in parts]).astype(np.float64)
        for name in ("images", "texts")
    )
    starts = np.cumsum([0, *(len(each.images) for each in parts)])
    owners = [each.image_of_text + start for each, start in zip(parts, starts, strict=False)]
    return Similarities(images @ texts.T, np.concatenate(owners))


@dataclass(frozen=True, slots=True)
class Draw:
    """Holds the recalls of one division into folds."""

    first: tuple[float, ...]
    """Of the first fold alone."""
    mean: tuple[float, ...]
    """Over all folds."""


def draws_of(gallery: Similarities, fold_count: int, draw_count: int, seed: int) -> Iterator[Draw]:
    """Yields the recalls of each division; raises ValueError for unequal folds."""
    count = len(gallery.scores)
    if count % fold_count:
        raise ValueError(f"{count} pictures do not divide into {fold_count} folds")
    rng = np.random.default_rng(seed)
    for _ in range(draw_count):
        folds = rng.permutation(count).reshape(fold_count, -1)
        recalls = [gallery.recalls(fold) for fold in folds]
        yield Draw(recalls[0], tuple(map(fmean, zip(*recalls, strict=True))))


def report(gallery: Similarities, draws: Sequence[Draw], fold_count: int) -> Iterator[str]:
    """Yields a table: the whole gallery, one fold, and the mean of folds, with their spread."""
    size = len(gallery.scores) // fold_count
    columns = [f"{direction} R@{k}" for direction in DIRECTIONS for k in RECALL_AT]
    yield f"| gallery | {' | '.join(columns)} | rSum |"
    yield "|" + " --- |" * (len(columns) + 2)
    whole = gallery.recalls(np.arange(len(gallery.scores)))
    yield _row(f"all {len(gallery.scores):,} pictures", [whole])
    yield _row(f"one part of {size:,}", [each.first for each in draws])
    yield _row(f"mean of {fold_count} folds of {size:,}", [each.mean for each in draws])


def _row(name: str, drawn: Sequence[tuple[float, ...]]) -> str:
    columns = [*zip(*drawn, strict=True), tuple(map(sum, drawn))]
    return f"| {name} | {' | '.join(map(_cell, columns))} |"


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{fmean(values):.1f} ± {stdev(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Prints how far recall moves by the drawing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", type=Path, nargs="+", help="lists of tandem neighbours build")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    parts = [load_neighbours(path).without_pools() for path in arguments.parts]
    first, *others = map(NeighbourManifest.of, parts)
    for path, other in zip(arguments.parts[1:], others, strict=True):
        check_same_base(path, other, first, str(arguments.parts[0]))
    gallery = joined(parts)
    draws = list(draws_of(gallery, arguments.folds, arguments.draws, arguments.seed))
    print(f"{first.base} of {first.model_fingerprint[:12]}, {len(draws)} draws\n")
    print("\n".join(report(gallery, draws, arguments.folds)))


if __name__ == "__main__":
    main()
