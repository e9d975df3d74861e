"""Writes and loads the files of an export, and compares their answers with the eager modules.

Two formats: model.pt is TorchScript, model.pt2 is an archive of torch.export. No other file uses
either. Both are written from the same modules, and held to them by the same comparison.
"""

import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from tandem.model_io.repository.config_pbtxt import max_batch_size
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.served_functions import PAIR_ROLES, Role
from tandem.modeling.export.conditional_encoders import conditional, without_symbolic_sums
from tandem.modeling.export.device_free import free_of_device
from tandem.modeling.export.samples import example_inputs, served_inputs
from tandem.modeling.separate_encoders import SeparateEncoders, encoders_in
from tandem.modeling.towers.two_towers import TowerRoute, TwoTowers
from tandem.platform.files.tensor_file import opened_for_torch

Modules = Mapping[str, nn.Module]
"""The eager module of each Triton model, by name."""

# Both run on this machine on the same inputs. In fp32 only the order of additions may differ; in
# fewer bits, such a difference can round a value to its neighbour.
_TOLERANCES = {
    Precision.FP32: 1e-5,
    Precision.BF16: 1e-3,
    Precision.FP16: 1e-3,
    Precision.INT8: 1e-3,
}
_DTYPES = {
    Role.EMBEDDING: torch.float32,
    Role.MATCH_LOGIT: torch.float32,
    Role.IMAGE_TOKENS: torch.float16,
}


class ExportMismatch(ValueError):
    """The exported model's output differs from the expected one."""


@dataclass(frozen=True, slots=True, eq=False)
class ExportedModel:
    """Holds the parts of a model as a server loads them, and their manifest."""

    manifest: Manifest
    parts: Mapping[str, Callable[..., Any]]
    """By name, each with its inputs in the manifest's order."""

    @classmethod
    def load(cls, manifest: Manifest, files: Mapping[str, Path]) -> Self:
        """Loads the file of each part; raises ExportMismatch naming one that is no such file."""
        return cls(manifest, {name: load_part(path) for name, path in files.items()})

    def check_answers(self) -> None:
        """Raises ExportMismatch unless every kind of served input gives a valid output.

        Valid means the shapes of the manifest, finite numbers, and embeddings of unit length.
        """
        for name, part in self.parts.items():
            roles = self.manifest.models[name].outputs
            for inputs in served_inputs(self.manifest, name):
                for role, answer in zip(roles, part_answers(part, inputs), strict=True):
                    self._check_legal(name, role, answer, len(inputs[0]))

    def compare(self, modules: Modules) -> None:
        """Raises ExportMismatch unless the modules give the same outputs in the export's precision.

        The tolerance is 1e-5 in fp32, else 1e-3, for each part.
        """
        tolerance = _TOLERANCES[Precision(self.manifest.precision)]
        for name, part in self.parts.items():
            for inputs in served_inputs(self.manifest, name):
                answers = part_answers(part, inputs), part_answers(modules[name], inputs)
                for exported, eager in zip(*answers, strict=True):
                    _compare(name, exported, eager, tolerance)

    def _check_legal(self, name: str, role: Role, answer: Tensor, batch: int) -> None:
        manifest, dtype = self.manifest, _DTYPES[role]
        shape: tuple[int, ...] = (batch, 1)
        if role is Role.EMBEDDING:
            shape = (batch, manifest.embedding_dim)
        elif role is Role.IMAGE_TOKENS:
            shape = (batch, manifest.image_token_count, manifest.token_width)
        if answer.shape != shape or answer.dtype != dtype:
            raise ExportMismatch(
                f"{name}: gives {list(answer.shape)} {answer.dtype} instead of "
                f"{list(shape)} {dtype}"
            )
        if not answer.isfinite().all():
            raise ExportMismatch(f"{name}: gives NaN or infinity")
        off = (answer.norm(dim=-1) - 1.0).abs().max().item() if role is Role.EMBEDDING else 0.0
        if off > 1e-3:
            raise ExportMismatch(f"{name}: embeddings are {off:.2e} off unit length")


def load_part(path: Path) -> Callable[..., Any]:
    """Loads one file of an export; raises ExportMismatch if it is no such file."""
    try:
        if path.suffix == ".pt2":
            return torch.export.load(str(path)).module()
        return torch.jit.load(str(path))
    except RuntimeError as error:
        kind = (
            "an archive of torch.export" if path.suffix == ".pt2" else "TorchScript of this torch"
        )
        raise ExportMismatch(f"{path} is not {kind}: {error}") from error


@torch.inference_mode()
def part_answers(part: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns the outputs of a loaded part, in the manifest's order."""
    answer = part(*inputs)
    return (answer,) if isinstance(answer, Tensor) else tuple(answer)


def write_exported(modules: Modules, manifest: Manifest, files: Mapping[str, Path]) -> None:
    for name, path in files.items():
        module, example = modules[name], example_inputs(manifest, name)
        program: torch.jit.ScriptModule
        if isinstance(module, SeparateEncoders):
            # A trace records one branch, so the choice between the encoders is scripted.
            traced = (_traced(each, example) for each in encoders_in(module))
            program = torch.jit.script(SeparateEncoders(*traced))
        elif isinstance(module, TwoTowers):
            program = torch.jit.script(_traced_towers(module.route(), example))
        else:
            program = _traced(module, example)
        with opened_for_torch(path) as file:
            torch.jit.save(program, file)


def write_pt2(modules: Modules, manifest: Manifest, files: Mapping[str, Path]) -> None:
    """Exports each module by torch.export and writes its archive, with batch and lengths free.

    Raises ValueError for a module whose lengths torch.export cannot leave free.
    """
    for name, path in files.items():
        graph = _graph(conditional(modules[name]), manifest, name)
        # By way of memory: its own writer ends the process on a full disk.
        archive = io.BytesIO()
        torch.export.save(graph, archive)
        path.write_bytes(archive.getbuffer())


def _traced_towers(route: TowerRoute, pairs: tuple[Tensor, ...]) -> TowerRoute:
    """Returns the route over traced functions; the text tower's weights are in the file once."""
    ids, text_mask, tokens, image_mask = pairs
    return TowerRoute(
        _traced(route.text, (ids, text_mask)),
        _traced(route.image, (tokens, image_mask)),
        _traced(route.pair, pairs),
    )


@torch.inference_mode()
def _traced(module: nn.Module, example: tuple[Tensor, ...]) -> torch.jit.ScriptModule:
    # A trace records whether a GPU may use TF32 for convolutions, as it does by default: fp32 on a
    # GPU would then have ten bits and differ from the CPU.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), warnings.catch_warnings():
        # A trace takes transformers' conditions on sizes for constants. They are; if one were not,
        # the comparison would find it. Tracing only reads transformers' deprecated names.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        warnings.simplefilter("ignore", FutureWarning)
        return free_of_device(torch.jit.trace(module, example, check_trace=False))


@torch.no_grad()
def _graph(module: nn.Module, manifest: Manifest, name: str) -> torch.export.ExportedProgram:
    example = example_inputs(manifest, name)
    batch = torch.export.Dim("batch", min=1, max=max(8, max_batch_size(manifest, name)))
    free = tuple(
        {0: batch} | ({1: torch.export.Dim.DYNAMIC} if role in PAIR_ROLES else {})
        for role in manifest.models[name].inputs
    )
    try:
        with warnings.catch_warnings():
            # Of a GRU's attributes, before the error that says what to do.
            warnings.filterwarnings("ignore", ".*were assigned during export", UserWarning)
            program = torch.export.export(module, example, dynamic_shapes=free, strict=False)
    except torch._dynamo.exc.UserError as error:  # noqa: SLF001  it has no other name
        raise ValueError(
            f"{name} of {manifest.family} has a layer that torch.export writes for one length "
            "alone, as it does a GRU, so there is no model.pt2 of it; leave --pt2 out"
        ) from error
    return without_symbolic_sums(program)


def _compare(name: str, exported: Tensor, eager: Tensor, tolerance: float) -> None:
    if exported.shape != eager.shape or exported.dtype != eager.dtype:
        raise ExportMismatch(
            f"{name}: exported {list(exported.shape)} {exported.dtype}, "
            f"eager {list(eager.shape)} {eager.dtype}"
        )
    difference = (exported.double() - eager.double()).abs().max().item()
    if not difference <= tolerance:  # also true of NaN
        raise ExportMismatch(f"{name}: exported and eager differ by {difference:.2e}")
