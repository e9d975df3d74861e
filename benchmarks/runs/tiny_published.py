"""Trains a small CLIP and a small BLIP on emoji, and saves them as published models are.

    python -m benchmarks.runs.tiny_published FOLDER [--seed 1] [--clip-steps N] [--blip-steps N …]

Writes FOLDER/tiny-clip and FOLDER/tiny-blip, which `tandem models add` takes. One thread, about 25
minutes of a core; prints one JSON line a model.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.support.emoji_batches import EmojiBatches
from benchmarks.support.tiny_published import SIZE, Plan, train_blip, train_clip


def main() -> None:
    """Trains those with more than 0 steps.

    BLIP begins with the image tower of FOLDER/tiny-clip. Each further count of steps continues with
    the BLIP before it: the second with ITM against pictures by chance, the third with half of them
    hard, the fourth also among the texts of a picture. The learning rate warms up and decays in
    each. A count of 0 takes the BLIP that is there.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clip-steps", type=int, default=900)
    parser.add_argument("--blip-steps", type=int, nargs="*", default=[700, 500, 400, 80])
    options = parser.parse_args()
    # One thread: the same sums in the same order give the same weights.
    torch.set_num_threads(1)
    batches = EmojiBatches.read(SIZE)
    clip_folder = options.folder / "tiny-clip"
    if options.clip_steps:
        plan = Plan(seed=options.seed, step_count=options.clip_steps)
        _report("tiny-clip", lambda: train_clip(clip_folder, plan, batches))
    start = clip_folder
    for number, step_count in enumerate(options.blip_steps):
        # Its text side has norms behind the layers, and needs a lower rate.
        blip_plan = Plan(
            seed=options.seed + number,
            step_count=step_count,
            batch=64 if number else 96,
            learning_rate=1e-3 if number else 7e-4,
            hard_share=0.5 if number > 1 else 0.0,
            has_both_ways=number > 2,
        )
        blip_folder = options.folder / "tiny-blip"
        if not step_count:
            start = blip_folder
            continue
        blip = partial(train_blip, blip_folder, blip_plan, batches, start)
        _report("tiny-blip", blip)
        start = blip_folder


def _report(name: str, train: Callable[[], float]) -> None:
    started = time.process_time()
    loss = train()
    seconds = time.process_time() - started
    print(json.dumps({"model": name, "last_loss": loss, "cpu_seconds": round(seconds)}))


if __name__ == "__main__":
    main()
