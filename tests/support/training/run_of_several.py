"""A training run of two processes, in a folder for each rank, so that ranks can be distinguished.

Argument 1 is the folder, argument 2 a free port. The process forks into two once it has imported
torch, as each import of torch and of what its optimisers need takes three seconds.
"""

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from tandem.lab.training.processes import torchrun_processes
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.train import train

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


def fork_into_two(port: int) -> None:
    """Returns in each of two processes, as torchrun would have started them."""
    # What an optimiser imports at its first use.
    importlib.import_module("torch._dynamo")
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(2):
        if not (child := os.fork()):
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            return
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


def main() -> None:
    """Trains RECIPE as one of two processes."""
    torch.set_num_threads(1)
    fork_into_two(int(sys.argv[2]))
    with torchrun_processes(torch.device("cpu")) as processes:
        train(
            RECIPE,
            SceneSource(),
            Path(sys.argv[1]) / f"rank-{processes.rank}",
            lambda *step: print(*step, flush=True),
            processes=processes,
        )


if __name__ == "__main__":
    main()
