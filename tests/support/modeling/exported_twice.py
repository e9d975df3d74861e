"""A module as it is served: traced, written, and loaded again; and by torch.export."""

import io
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

Inputs = tuple[Tensor, ...]
Function = Callable[..., Tensor | tuple[Tensor, ...]]


@torch.inference_mode()
def traced(module: nn.Module, example: Inputs) -> Function:
    """Returns the trace of a module, as a server loads it."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # Tracing looks at every attribute of transformers' models, deprecated ones too, and warns
        # of every size that they compare. What it may have fixed, the caller's cases show.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", TracerWarning)
        torch.jit.save(torch.jit.trace(module, example, check_trace=False), file)
    file.seek(0)
    return torch.jit.load(file)


def exported(module: nn.Module, example: Inputs, free: tuple[tuple[int, ...], ...]) -> Function:
    """Returns torch.export's form; `free` are the dimensions of each input that may change."""
    shapes = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in free)
    with torch.no_grad():
        return torch.export.export(module, example, dynamic_shapes=shapes).module()


@torch.inference_mode()
def largest_difference(one: Function, other: Function, cases: Iterator[Inputs]) -> float:
    """Returns the largest difference between the outputs of both, over all cases."""
    found = 0.0
    for inputs in cases:
        for left, right in zip(_outputs(one(*inputs)), _outputs(other(*inputs)), strict=True):
            assert (left.shape, left.dtype) == (right.shape, right.dtype)
            found = max(found, (left.double() - right.double()).abs().max().item())
    return found


def _outputs(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)
