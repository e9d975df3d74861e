"""Where a run computes, and how exactly.

The CPU and CUDA take one path: of what a run does, nothing but `Compute` asks which it is. What
starts a run does, to connect its processes and to warn of a CPU that emulates bf16. **The CUDA path
has not been run**: no GPU was there when this was written. What a CPU run promises, the same
weights again and after going on, is not promised for CUDA, whose kernels may add in another order
each time.
"""

from dataclasses import dataclass

import torch

from tandem.training.data.batches import Batch, with_tensors


@dataclass(frozen=True, slots=True)
class Compute:
    """A device, and whether matrices are multiplied in bf16 or all is float32."""

    device: torch.device
    precision: str
    """As in a recipe: "bf16" or "fp32"."""

    def put(self, batch: Batch) -> Batch:
        """Returns a tensor, or a batch with its tensors, on the device: the one place for it."""
        return with_tensors(batch, lambda tensor: tensor.to(self.device))

    def autocast(self) -> torch.autocast:
        """Returns the context in which the model runs."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")


def device_named(name: str | None, cuda_number: int = 0) -> torch.device:
    """Returns the device of a name such as cpu, cuda or cuda:1.

    Without a name, cuda where torch sees one, else cpu. `cuda_number` is for a name without one.
    Raises ValueError for a name of another kind, and for a CUDA device that torch does not see.
    """
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        name = "cuda" if seen else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"no device {name!r}; there are cpu, cuda and cuda:n")
    if device.type == "cpu":
        return torch.device("cpu")
    number = cuda_number if device.index is None else device.index
    if number >= seen:
        raise ValueError(f"no device cuda:{number}: torch sees {seen} CUDA devices; use cpu")
    return torch.device("cuda", number)
