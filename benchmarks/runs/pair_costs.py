"""What the parts of a BLIP of full size cost on one thread: a picture, a text, pairs of both.

    python -m benchmarks.runs.pair_costs [--precisions fp32,bf16] [--repeats 2]

The model is a BLIP B/16 of 384 pixels with random weights, read and lowered as an export does. CPU
seconds of one thread, the least of the repeats, which other load changes little; the time of a
search follows from the cores that it has. Prints a table and one line of JSON.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.support.random_blip import write_blip
from tandem.model_io.precision import Precision
from tandem.modeling.export.lowered import lowered_part
from tandem.modeling.export.pooled_tokens import pooled_count
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import read_published_model

_PAIR_COUNT = 4
"""A batch on a CPU."""
_TEXT_LENGTH = 12


def main() -> None:
    """Measures every precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        write_blip(Path(name))
        model = read_published_model(Path(name))
    print("| precision | picture, s | text, s | pair, s | pair of pooled tokens, s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for precision in map(Precision, arguments.precisions.split(",")):
        seconds = _seconds(model, precision, arguments.repeats)
        print(f"| {precision} | {' | '.join(f'{value:.3f}' for value in seconds.values())} |")
        print(json.dumps({"run": "pair_costs", "precision": precision, **seconds}))
    _print_choices(model)


@torch.inference_mode()
def _seconds(model: PublishedModel, precision: Precision, repeats: int) -> dict[str, float]:
    """Returns the CPU seconds of one picture, one text, and one pair of either kind."""
    towers, pairs = model.bi_encoder, model.cross_encoder
    assert towers is not None
    assert pairs is not None
    size, count = towers.pixels.size, pairs.image_token_count
    pixels = torch.zeros(1, size, size, 3, dtype=torch.uint8)
    ids = torch.full((_PAIR_COUNT, _TEXT_LENGTH), 10)
    image, text, score = (
        lowered_part(each, precision)
        for each in (towers.embed_image, towers.embed_text, pairs.score_pair)
    )

    def scored(token_count: int) -> Callable[[], object]:
        tokens = torch.randn(_PAIR_COUNT, token_count, pairs.token_width).half()
        mask = torch.ones(_PAIR_COUNT, token_count, dtype=torch.int64)
        return lambda: score(ids, torch.ones_like(ids), tokens, mask)

    return {
        "picture_seconds": _least(lambda: image(pixels), repeats),
        "text_seconds": _least(lambda: text(ids[:1], torch.ones_like(ids[:1])), repeats),
        "pair_seconds": _least(scored(count), repeats) / _PAIR_COUNT,
        "pooled_pair_seconds": _least(scored(pooled_count(count)), repeats) / _PAIR_COUNT,
    }


def _least(call: Callable[[], object], repeats: int) -> float:
    call()
    found = []
    for _ in range(repeats):
        started = time.thread_time()
        call()
        found.append(time.thread_time() - started)
    return min(found)


def _print_choices(model: PublishedModel) -> None:
    pairs = model.cross_encoder
    assert pairs is not None
    counts = {
        "stored": pairs.image_token_count,
        "pooled": pooled_count(pairs.image_token_count),
        "recomputed": 0,
    }
    print("\n| tokens | bytes an item | GB a million items |\n| --- | ---: | ---: |")
    for name, count in counts.items():
        size = 2 * count * pairs.token_width
        print(f"| {name} | {size:,} | {size / 1e3:,.0f} |")


if __name__ == "__main__":
    main()
