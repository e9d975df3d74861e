"""Training runs of two processes, one after another: a whole one, or one without each of LEFT_OUT.

Argument 1 is the folder, the others name the runs. Each run has a folder in it, WHOLE or the name
of what is left out, and in that each rank has its own, so that ranks can be distinguished.
torchrun starts them, or a process that has imported torch forks into them: each import of torch
and of what its optimisers need takes three seconds.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from tandem.training.processes import Processes, torchrun_processes
from tandem.training.recipes.named_recipes import tiny
from tandem.training.sources.scene_source import SceneSource
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


WHOLE = "whole"


@contextmanager
def without(left_out: str) -> Iterator[None]:
    place, name, nothing = LEFT_OUT[left_out]
    own = getattr(place, name)
    setattr(place, name, nothing)
    try:
        yield
    finally:
        setattr(place, name, own)


def run(folder: Path, processes: Processes) -> None:
    train(
        RECIPE,
        SceneSource(),
        folder / f"rank-{processes.rank}",
        lambda *step: print(folder.name, *step, flush=True),
        processes=processes,
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
    """Trains as one of two processes; without torchrun, argument 2 is their port."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    if "RANK" not in os.environ:
        fork_into_two(int(sys.argv.pop(2)))
    with torchrun_processes(torch.device("cpu")) as processes:
        for name in sys.argv[2:]:
            with nullcontext() if name == WHOLE else without(name):
                run(folder / name, processes)


if __name__ == "__main__":
    main()
