"""A training run for torchrun: argument 1 is the folder, 2 the name of what is left out, if any.

Each rank gets a folder of its own, so that what a rank writes can be told.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from tandem.training.processes import Processes, torchrun_processes
from tandem.training.recipes import tiny
from tandem.training.scene_source import SceneSource
from tandem.training.train import train

# Softmax in rounds 1 and 2, the batch-hard triplet after them; float32, so that only the order of
# additions differs. Two micro-batches a step, masked words, and mined negatives for both uses.
RECIPE = replace(
    tiny(1),
    precision="fp32",
    gradient_clip_norm=1e3,  # the usual clip would hide a gradient of another scale
    round_count=5,
    dev_every_round_count=5,
    be_batch_size=16,
    ce_family_count=4,
    accumulation_step_count=2,
    mined_from_round_count=3,
    mined_refresh_round_count=1,
    mined_negative_share=0.5,
    ance_steps_per_round=1,
    ance_batch_size=4,
    ance_negative_count=3,
    mlm_steps_per_round=1,
    mlm_batch_size=8,
)
# What is replaced where, so that something is left out.
LEFT_OUT: dict[str, tuple[type, str, Callable[..., object]]] = {
    "gradient_of_gathered": (torch.Tensor, "register_hook", lambda *_: None),
    "average_gradients": (Processes, "average_gradients", lambda *_: None),
}


def main() -> None:
    """Trains as one of the processes that torchrun started."""
    torch.set_num_threads(1)
    folder, left_out = Path(sys.argv[1]), sys.argv[2]
    if left_out:
        setattr(*LEFT_OUT[left_out])
    with torchrun_processes(torch.device("cpu")) as processes:
        train(
            RECIPE,
            SceneSource(),
            folder / f"rank-{processes.rank}",
            lambda *step: print(*step, flush=True),
            processes=processes,
        )


if __name__ == "__main__":
    main()
