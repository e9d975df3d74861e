"""Chooses the device and the precision of a run.

CPU and CUDA share one path: within a run, only `Compute` knows which it is. **The CUDA path has not
been run**: no GPU was available when this was written. A CPU run gives the same weights again, also
after a resume; CUDA kernels may add in a different order each time, so a CUDA run may not.
"""

from dataclasses import dataclass

import torch

from tandem.lab.training.data.batches import Batch, with_tensors


@dataclass(frozen=True, slots=True)
class Compute:
    """Holds a device and the precision of its matrix products."""

    device: torch.device
    precision: str
    """As in a recipe: "bf16" or "fp32"."""

    def put(self, batch: Batch) -> Batch:
        """Returns a tensor, or a batch with its tensors, on the device; nothing else moves them."""
        return with_tensors(batch, lambda tensor: tensor.to(self.device))

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")


def device_named(name: str | None, cuda_number: int = 0) -> torch.device:
    """Returns the device of that name, such as cpu, cuda or cuda:1.

    Without a name it is cuda where torch sees one, else cpu. `cuda_number` completes a bare "cuda".
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
