"""Which kinds of siblings a checkpoint tells apart: what R@1 over whole families averages over.

    python -m benchmarks.bench.sibling_kinds [--checkpoint FOLDER ...] [--families 250]

Every query is held against its answer and one sibling of that answer, both ways, by similarity and
by match logit. Siblings are sorted by their difference. Distinguished is the share of pairs whose
answer came first; chance is 50 %. The columns of the languages are of both directions.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from pathlib import Path
from typing import Final

from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import FAMILY_SIZE, scene_family, scene_records
from tandem.corpus.scenes.scene import Layout, Scene
from tandem.evaluation.gallery import DIRECTIONS, Gallery
from tandem.evaluation.offline import OfflineGallery
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint

SPLIT: Final = "test"
SEED = 1
ORDERS = ("BE", "CE")


@dataclass(frozen=True, slots=True)
class Preferred:
    """One query, its answer and a sibling."""

    kind: str
    language: str
    direction: str
    by_be: bool
    by_ce: bool


def kind_of(scene: Scene, sibling: Scene) -> str:
    """Returns what parts two scenes of a family; more than one fact where neither is the first."""
    here, there = scene.groups, sibling.groups
    if {group.noun for group in here} != {group.noun for group in there}:
        exchanged = [a.count for a in here] == [b.count for b in there]
        return "a drawing" if exchanged else "more than one fact"
    if [group.noun for group in here] == [group.noun for group in there]:
        return "a count" if len(here) == 1 else "counts swapped"
    if {(group.noun, group.count) for group in here} != {
        (group.noun, group.count) for group in there
    }:
        return "more than one fact"
    return "above and below" if scene.layout is Layout.STACKED else "left and right"


def preferred(checkpoint: Checkpoint, family_count: int) -> Iterator[Preferred]:
    """Yields what the checkpoint prefers in the first so many families, a language a family."""
    records = scene_records(SPLIT, SEED, family_count * FAMILY_SIZE)
    for number in range(family_count):
        language = LANGUAGES[number % len(LANGUAGES)]
        chosen = tuple(
            (record, tuple(said for said in record.captions if said.language == language)[:1])
            for record in islice(records, FAMILY_SIZE)
        )
        scenes = scene_family(SPLIT, SEED, number)
        gallery = OfflineGallery(checkpoint, Gallery(chosen, FAMILY_SIZE))
        for direction, target in DIRECTIONS.items():
            pools = gallery.score(target, FAMILY_SIZE)
            # The pool is in the bi-encoder's order: a logit is found by its item's place there.
            logits = [
                dict(zip(map(int, order), row, strict=True))
                for order, row in zip(pools.retrieved, pools.logits, strict=True)
            ]
            for own, other in permutations(range(FAMILY_SIZE), 2):
                yield Preferred(
                    kind_of(scenes[own], scenes[other]),
                    language,
                    direction,
                    bool(pools.similarity[own, own] > pools.similarity[own, other]),
                    bool(logits[own][own] > logits[own][other]),
                )


def main() -> None:
    """Prints a JSON line and a table for each checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, action="append", help="instead of the shipped")
    parser.add_argument("--families", type=int, default=250, help="of four scenes")
    arguments = parser.parse_args()
    for folder in arguments.checkpoint or [default_checkpoint()]:
        found: dict[tuple[str, str], list[Preferred]] = defaultdict(list)
        for each in preferred(load_checkpoint(folder), arguments.families):
            for language in (each.language, "all"):
                found[each.kind, language].append(each)
        _print(folder, found)


def _print(folder: Path, found: Mapping[tuple[str, str], list[Preferred]]) -> None:
    figures = {
        f"{kind}, {language}": _figures(asked) for (kind, language), asked in sorted(found.items())
    }
    print(json.dumps({"checkpoint": folder.name, "split": SPLIT, "told_percent": figures}))
    columns = [f"{direction} {order}" for direction in DIRECTIONS for order in ORDERS]
    by_language = [f"CE {language}" for language in LANGUAGES]
    print(f"\n| the sibling differs by | pairs | {' | '.join(columns + by_language)} |")
    print(f"| ---{' | ---:' * (1 + len(columns) + len(by_language))} |")
    for kind in sorted({kind for kind, _ in found}):
        row = figures[f"{kind}, all"]
        shares = [f"{row[column]:.1f}" for column in columns]
        for language in LANGUAGES:
            share = figures.get(f"{kind}, {language}")
            shares.append("" if share is None else f"{share['CE']:.1f}")
        print(f"| {kind} | {row['pairs']:,} | {' | '.join(shares)} |")
    print()


def _figures(asked: Sequence[Preferred]) -> dict[str, float]:
    figures: dict[str, float] = {"pairs": len(asked)}
    for direction in DIRECTIONS:
        told = [each for each in asked if each.direction == direction]
        figures[f"{direction} BE"] = _percent([each.by_be for each in told])
        figures[f"{direction} CE"] = _percent([each.by_ce for each in told])
    figures["CE"] = _percent([each.by_ce for each in asked])
    return figures


def _percent(answers: Sequence[bool]) -> float:
    return round(100 * sum(answers) / len(answers), 2)


if __name__ == "__main__":
    main()
