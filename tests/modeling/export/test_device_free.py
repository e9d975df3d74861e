"""A trace made on a CPU names no device, so that a GPU can run it."""

import torch
from torch import Tensor, nn

from tandem.modeling.export.device_free import free_of_device


class Positions(nn.Module):
    """Adds positions that it makes where its input is, as transformers' models do."""

    def forward(self, ids: Tensor, scale: Tensor) -> Tensor:
        return ids + torch.arange(ids.shape[1], device=ids.device) * scale


class Outer(nn.Module):
    """Has a part that makes tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Positions()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(ids, self.weight) + torch.zeros(1, device=ids.device)


def devices_in(traced: torch.jit.ScriptModule) -> int:
    """How many tensors are made on a device that the trace names."""
    return str(traced.inlined_graph).count('Device = prim::Constant[value="cpu"]')


def test_made_tensors_follow_the_input() -> None:
    traced = torch.jit.trace(Outer(), torch.zeros(2, 3), check_trace=False)
    assert devices_in(traced)  # positive control: the trace alone names one

    free = free_of_device(traced)

    assert not devices_in(free)
    assert str(free.inlined_graph).count("prim::device") == 1
    ids = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0]])
    assert torch.equal(free(ids), torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]))


def test_a_trace_without_devices_is_unchanged() -> None:
    traced = torch.jit.trace(nn.Linear(3, 2), torch.zeros(1, 3), check_trace=False)
    before = str(traced.inlined_graph)

    assert str(free_of_device(traced).inlined_graph) == before
