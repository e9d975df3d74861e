"""Trains one model with several processes (data parallelism), each on its part of every batch.

All processes draw the recipe's whole batch alike, so a run by two processes follows a run by one,
except for the order in which floats are added. torchrun starts them:

    python -m torch.distributed.run --nproc-per-node 2 -m tandem.cli train default
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tandem.lab.training.data.batches import Batch, with_tensors

Result = TypeVar("Result")

# The others wait while the first trains the image backbone.
_TIMEOUT = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Processes:
    """Identifies this process in the run. All processes must call each method except `part`."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def part(self, batch: Batch) -> Batch:
        """Returns this process's rows: part number `rank` of `count` equal ones."""
        return with_tensors(batch, lambda tensor: tensor.chunk(self.count)[self.rank])

    def gathered(self, rows_BD: Tensor) -> Tensor:
        """Returns the rows of all processes in the order of the whole batch, so all share one loss.

        Gradient flows only to this process's rows, multiplied by `count`: `average_gradients`
        divides.
        """
        if self.count == 1:
            return rows_BD
        parts = [torch.empty_like(rows_BD) for _ in range(self.count)]
        dist.all_gather(parts, rows_BD.detach().contiguous())
        parts[self.rank] = rows_BD.clone()
        if rows_BD.requires_grad:
            parts[self.rank].register_hook(lambda gradient: gradient * self.count)
        return torch.cat(parts)

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replaces every gradient by the mean over the processes: that of the whole batch."""
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = (flat / self.count).split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def mean(self, value: float) -> float:
        values = self.each(value)
        return sum(values) / len(values)

    def each(self, value: Result) -> list[Result]:
        """Returns the processes' values by rank; they must be picklable."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def shared(self, count: int, make: Callable[[int], Result]) -> list[Result]:
        """Returns `make` of 0 to `count` - 1, each made by one of the processes."""
        made = self.each([make(number) for number in range(self.rank, count, self.count)])
        return [made[number % self.count][number // self.count] for number in range(count)]

    def take_from_first(self, module: nn.Module) -> None:
        """Copies the first process's weights and buffers to all."""
        if self.count > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()


ALONE = Processes()


def torchrun_local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def torchrun_processes(device: torch.device) -> Iterator[Processes]:
    """Connects the processes that torchrun started; without torchrun, yields only this one.

    Uses gloo on the CPU and NCCL on CUDA, which has not been run.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ALONE
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        yield Processes(dist.get_rank(), count)
    finally:
        dist.destroy_process_group()
