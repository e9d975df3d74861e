"""Models that do what ours never should, for a server of their own; TorchScript, except for one."""

from pathlib import Path

import torch
from torch import Tensor, nn

MOODY, REVERSED, UNBATCHED, ECHO = "moody", "reversed", "unbatched", "echo"

# The largest number in moody's input decides what it does.
PLAIN, NAN, HEADLESS, DOUBLE, SLOW = 1.0, 10.0, 20.0, 30.0, 40.0
# Enough to wait for one another, too few for what tests/triton sends to overflow it.
MOODY_QUEUE_SIZE = 6
REVERSED_INPUT_COUNT = 12


class Moody(nn.Module):
    """x + 1, or a fault."""

    def forward(self, x: Tensor) -> Tensor:
        """float32 [B, 3] -> float32 [B, 3]; fails on negative numbers."""
        if bool((x < 0).any()):
            raise RuntimeError("no negative numbers")
        mood = float(x.max())
        if mood == 10.0:
            return x * float("nan")
        if mood == 20.0:
            return x[:1]
        if mood == 30.0:
            return x.double()
        if mood == 40.0:
            square = torch.eye(512)
            for _ in range(150):  # half a second on a fast core, which tests wait through
                square = square @ square
            return x + square[0, 0]
        # By columns: what the server reads must not be the buffer as it lies.
        return (x + 1).t().contiguous().t()


class Reversed(nn.Module):
    """Tells its arguments apart, more of them than digits."""

    def forward(
        self,
        x0: Tensor,
        x1: Tensor,
        x2: Tensor,
        x3: Tensor,
        x4: Tensor,
        x5: Tensor,
        x6: Tensor,
        x7: Tensor,
        x8: Tensor,
        x9: Tensor,
        x10: Tensor,
        x11: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """float32 [B, 1] each -> all of them [B, 12], and the first less the last [B, 1]."""
        everything = torch.cat([x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11], dim=1)
        return everything, x0 - x11


class Unbatched(nn.Module):
    """2 x, without a batch dimension."""

    def forward(self, x: Tensor) -> Tensor:
        """float32 [n] -> float32 [n]."""
        return 2 * x


_ECHO_PROGRAM = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x") for request in requests]
        outputs = [pb_utils.Tensor.from_dlpack("OUTPUT__0", each.to_dlpack()) for each in inputs]
        return [pb_utils.InferenceResponse([output]) for output in outputs]
"""


def write_echo(repository: Path) -> Path:
    """Writes a model that answers with its input, float32 [n]; returns `repository`.

    It loads soonest, because it does not import torch.
    """
    folder = repository / ECHO
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(_ECHO_PROGRAM)
    tensors = tensor("input", "x", -1) + tensor("output", "OUTPUT__0", -1)
    (folder / "config.pbtxt").write_text(
        f'name: "{ECHO}" backend: "python" instance_group [ {{ kind: KIND_CPU }} ]\n'
        f"max_batch_size: 0 {tensors}\n"
    )
    return repository


def write_unbatched(repository: Path) -> Path:
    """Writes that one alone; returns `repository`."""
    tensors = tensor("input", "x", -1) + tensor("output", "OUTPUT__0", -1)
    write_model(repository, UNBATCHED, Unbatched(), f"max_batch_size: 0 {tensors}")
    return repository


def write_odd_models(repository: Path) -> Path:
    """Writes all three; returns `repository`."""
    write_moody(repository)
    inputs = [f"INPUT__{number}" for number in reversed(range(REVERSED_INPUT_COUNT))]
    write_model(
        repository,
        REVERSED,
        Reversed(),
        f"""
        max_batch_size: 8
        {" ".join(tensor("input", name, 1) for name in inputs)}
        {tensor("output", "OUTPUT__1", 1)} {tensor("output", "OUTPUT__0", 12)}
        dynamic_batching {{ }}""",
    )
    return write_unbatched(repository)


def write_moody(repository: Path) -> Path:
    """Writes that one alone; returns `repository`."""
    write_model(
        repository,
        MOODY,
        Moody(),
        f"""
        max_batch_size: 8
        {tensor("input", "x", 3)} {tensor("output", "OUTPUT__0", 3)}
        dynamic_batching {{
          max_queue_delay_microseconds: 100000
          default_queue_policy {{
            max_queue_size: {MOODY_QUEUE_SIZE}
            default_timeout_microseconds: 100000000
            allow_timeout_override: true
          }}
        }}""",
    )
    return repository


def write_model(repository: Path, name: str, module: nn.Module, settings: str) -> None:
    """Writes one model's folder: the module scripted, and config.pbtxt with `settings`."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    torch.jit.script(module).save(str(folder / "1" / "model.pt"))
    (folder / "config.pbtxt").write_text(
        f'name: "{name}" backend: "pytorch" instance_group [ {{ kind: KIND_CPU }} ]\n{settings}\n'
    )


def tensor(kind: str, name: str, size: int) -> str:
    """Returns the "input" or "output" of one dimension."""
    return f'{kind} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ {size} ] }} ]'
