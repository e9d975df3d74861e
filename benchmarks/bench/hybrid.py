"""Measures hybrid searches of keyword queries: the names of emoji.

    python -m benchmarks.bench.hybrid --checkpoint FOLDER

The words of an item are its first ten keywords in English, never its name. A name finds drawings, a
drawing together with its name finds the texts of keywords, and a name finds these texts. In a first
run half of the concepts have words, so that neither list has everything, in a second all have.

One part of the queries chooses fusion and weight by MRR@10, the other one is reported: for the
split `test` the concepts of `val` choose, for `test_style` one half of its own concepts, by a
digest. "By" is how much MRR@10 of the choice is above each list alone, in points, with the 95 %
interval of a bootstrap and the p-value of a permutation test. Then come other constants than the 60
of reciprocal rank fusion. With `--shards` it measures instead
what several shards with statistics of their own find by words.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch

from benchmarks.support.fusion_choice import (
    DEFAULT_CHOICE,
    KEYWORD_WEIGHTS,
    FoundLists,
    FusionChoice,
    PairedDifference,
    Ranks,
    best_choice,
    paired_difference,
)
from benchmarks.support.keyword_task import KeywordTask, Worded, keyword_tasks
from tandem.corpus.emoji import Split
from tandem.demo_files import demo_folder
from tandem.evaluation.metrics import mean_reciprocal_rank, recall_at

SHARD_COUNTS = (1, 2, 4, 8)
RANK_CONSTANTS = (1, 5, 10, 20, 60, 100)
SPLITS: tuple[Split, ...] = ("test", "test_style")


@dataclass(frozen=True, slots=True)
class Part:
    """Holds some queries of a task with what was found for them."""

    lists: FoundLists
    numbers: Sequence[int]

    def of(self, ranks: Ranks) -> Ranks:
        """Returns the ranks of these queries."""
        return [ranks[number] for number in self.numbers]

    def fused(self, choice: FusionChoice) -> Ranks:
        """Returns the ranks of these queries in the fused lists."""
        return self.of(self.lists.fused_ranks(choice))


def parts(split: Split, options: argparse.Namespace) -> Iterator[tuple[Worded, Part, Part]]:
    """Yields for each task the part that chooses and the part that is reported."""
    tasks = keyword_tasks(split, options.checkpoint, options.count)
    others = keyword_tasks("val", options.checkpoint, options.count) if split == "test" else tasks
    for task, other in zip(tasks, others, strict=True):
        for worded in Worded:
            lists = FoundLists(task, task.nearest(), task.by_words(worded))
            every = range(len(task.words))
            if other is task:
                chosen = [number for number in every if chooses(task.query_concepts[number])]
                rest = sorted(set(every) - set(chosen))
                yield worded, Part(lists, chosen), Part(lists, rest)
            else:
                apart = FoundLists(other, other.nearest(), other.by_words(worded))
                yield worded, Part(apart, range(len(other.words))), Part(lists, every)


def chooses(concept: str) -> bool:
    """Returns whether a concept is of the half that chooses."""
    return sha256(f"chooses/{concept}".encode()).digest()[0] % 2 == 0


def figures(ranks: Ranks) -> str:
    """Returns R@1, R@10 in percent, and MRR@10 times 100."""
    recalls = " | ".join(f"{recall_at(ranks, k).percent:.1f}" for k in (1, 10))
    return f"{recalls} | {100 * mean_reciprocal_rank(ranks):.1f}"


def gain(difference: PairedDifference) -> str:
    """Returns a difference with its interval and p-value."""
    return (
        f"{difference.points:+.1f} ({difference.low:+.1f} to {difference.high:+.1f}), "
        f"p {difference.p_value:.4f}"
    )


def print_fusions(split: Split, options: argparse.Namespace) -> None:
    """Prints the table of each task of a split, and which constant of the ranks would be best."""
    for worded, choosing, reported in parts(split, options):
        lists, of = reported.lists, reported.of
        choice = best_choice(choosing.fused)
        near, words = of(lists.near_ranks()), of(lists.word_ranks())
        fused = reported.fused(choice)
        print(f"\n### {split}: {lists.task.name}, {worded.value} of the concepts with words\n")
        print(
            f"{len(choosing.numbers)} queries choose, {len(reported.numbers)} are reported, "
            f"{len(lists.task.item_concepts)} items\n"
        )
        print("| | R@1 | R@10 | MRR@10 |\n| --- | --- | --- | --- |")
        print(f"| embeddings | {figures(near)} |")
        print(f"| BM25 | {figures(words)} |")
        print(f"| by default: {DEFAULT_CHOICE} | {figures(reported.fused(DEFAULT_CHOICE))} |")
        print(f"| chosen: {choice} | {figures(fused)} |")
        print(f"\nThe chosen one by {gain(paired_difference(fused, near))} over embeddings, and by")
        print(f"{gain(paired_difference(fused, words))} over BM25.")
        constants = ", ".join(
            f"{each}: {best_of_constant(choosing, each):.1f}" for each in RANK_CONSTANTS
        )
        print(f"The best MRR@10 of those that choose, by constant of the ranks: {constants}.")


def best_of_constant(part: Part, constant: int) -> float:
    """Returns the MRR@10 by reciprocal rank with a constant and its best weight, times 100."""
    return 100 * max(
        mean_reciprocal_rank(part.of(part.lists.reciprocal_ranks(constant, weight)))
        for weight in KEYWORD_WEIGHTS
    )


def print_shards(tasks: Sequence[KeywordTask], split: Split) -> None:
    """Prints what words find on several shards."""
    for task in tasks:
        print(f"\n### {split}: {task.name}, by words on shards\n")
        print("| shards | R@1 | R@10 | MRR@10 |\n| --- | --- | --- | --- |")
        for count in SHARD_COUNTS:
            found = [[each.hit for each in hits] for hits in task.by_words(Worded.HALF, count)]
            print(f"| {count} | {figures(task.ranks(found))} |")


def main() -> None:
    """Prints a table for each search."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=SPLITS)
    parser.add_argument("--count", type=int, help="drawings of a split; by default all")
    parser.add_argument("--checkpoint", type=Path, help="by default the demo's model")
    parser.add_argument("--shards", action="store_true", help="measure words on shards instead")
    options = parser.parse_args()
    options.checkpoint = options.checkpoint or demo_folder(
        "modeling/checkpoints/default", "the demo's model"
    )
    torch.set_num_threads(1)
    for split in options.splits:
        if options.shards:
            print_shards(keyword_tasks(split, options.checkpoint, options.count), split)
        else:
            print_fusions(split, options)


if __name__ == "__main__":
    main()
