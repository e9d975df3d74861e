"""Trains a small CLIP and a small BLIP on emoji, and saves them as published models are.

    python -m benchmarks.runs.tiny_published FOLDER [--seed 1] [--clip-steps 900] [--blip-steps 900]

Writes FOLDER/tiny-clip and FOLDER/tiny-blip, which `tandem models add` takes. One thread, about 20
minutes of a core; prints one JSON line a model.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from benchmarks.support.emoji_batches import EmojiBatches
from benchmarks.support.tiny_published import SIZE, Plan, train_blip, train_clip


def main() -> None:
    """Trains both, or those with more than 0 steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clip-steps", type=int, default=900)
    parser.add_argument("--blip-steps", type=int, default=900)
    options = parser.parse_args()
    # One thread: the same sums in the same order give the same weights.
    torch.set_num_threads(1)
    batches = EmojiBatches.read(SIZE)
    trainings = {
        "tiny-clip": (train_clip, options.clip_steps),
        "tiny-blip": (train_blip, options.blip_steps),
    }
    for name, (train, step_count) in trainings.items():
        if step_count:
            started = time.process_time()
            plan = Plan(seed=options.seed, step_count=step_count)
            loss = train(options.folder / name, plan, batches)
            seconds = time.process_time() - started
            print(json.dumps({"model": name, "last_loss": loss, "cpu_seconds": round(seconds)}))


if __name__ == "__main__":
    main()
