"""Triton's `pytorch` backend, in Python: what the native libtorch backend does, where it is absent.

A model folder with `backend: "pytorch"` and `1/model.pt` runs unchanged on either. It also runs one
whose `default_model_filename` is `model.pt2`, an archive of torch.export. Put the folder this file
is in next to the `python` backend in Triton's backend directory.

Tensors pass as DLPack only: no copy, and no NumPy between the server and torch (Triton 2.51 answers
with empty tensors, and no error, when NumPy is 2 or newer).
"""

import gc
import importlib
import json
import os
import re
import sys
import time
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# What torch's import makes stays: collections on the way take a sixth of a start's CPU and free
# nothing. They begin again when the model is loaded.
gc.disable()

# The shapes of every operator's results, in Python, are a third of the CPU of torch's import.
# Tracing needs them, and so an archive of torch.export, which imports them again; TorchScript does
# not.
_SHAPES = "torch._meta_registrations"
sys.modules[_SHAPES] = types.ModuleType(_SHAPES)

import torch  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402
from torch.utils.dlpack import from_dlpack, to_dlpack  # noqa: E402

del sys.modules[_SHAPES]

warnings.filterwarnings("ignore", message=".*torch.jit.*deprecated")

# What a model raises: by its operators, by a raise of its own, or by an archive's guards.
_FAULTS = (RuntimeError, torch.jit.Error, AssertionError)
# An output that no model has: where config.pbtxt promises it, the batch's seconds in the model.
# Triton 2.51 lets a Python backend tell its clients of a request in no other way.
_COMPUTE_SECONDS = "COMPUTE_SECONDS"
# OUTPUT__0, OUTPUT__1: the native backend's way of naming by position.
_BY_POSITION = re.compile(r".*__(\d+)$")


class TritonPythonModel:
    """One instance of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the model; raises if config.pbtxt and the model's forward do not fit."""
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        file_name = config.get("default_model_filename") or "model.pt"
        # One instance has the cores that the operator gave it; more threads than cores only wait.
        torch.set_num_threads(int(os.environ.get("TANDEM_TORCH_THREAD_COUNT", "1")))
        # Or it would compile again for each new shape, in the middle of serving.
        torch.jit.set_fusion_strategy([])
        self._device = _device(args)
        self._model, arguments = _loaded(folder / file_name, self._device)
        self._input_names = _in_forward_order(
            [entry["name"] for entry in config["input"]], arguments
        )
        output_names = [entry["name"] for entry in config["output"]]
        self._is_timed = _COMPUTE_SECONDS in output_names
        self._output_names = _by_position([n for n in output_names if n != _COMPUTE_SECONDS])
        self._is_batched = config.get("max_batch_size", 0) > 0
        _set_long_lived_aside()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Runs the requests of one dynamic batch as one; the server made their shapes equal."""
        if not self._is_batched or len(requests) == 1:
            return [self._respond_alone(request) for request in requests]
        start_time = time.perf_counter()
        inputs = [self._tensors(request) for request in requests]
        counts = [tensors[0].shape[0] for tensors in inputs]
        try:
            outputs = self._run([torch.cat(column) for column in zip(*inputs, strict=True)])
        except _FAULTS:
            # One request may be at fault: alone, it fails alone.
            return [self._respond_alone(request) for request in requests]
        columns = [output.split(counts) for output in outputs]
        seconds = time.perf_counter() - start_time
        return [self._response(parts, seconds) for parts in zip(*columns, strict=True)]

    def _respond_alone(self, request: Any) -> Any:  # noqa: ANN401 (Triton's own types)
        start_time = time.perf_counter()
        try:
            outputs = self._run(self._tensors(request))
            return self._response(outputs, time.perf_counter() - start_time)
        except _FAULTS as error:
            # TorchScript's errors open with where the model was traced; what went wrong ends them.
            last_line = str(error).strip().rpartition("\n")[2]
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(last_line))

    def _tensors(self, request: Any) -> list[torch.Tensor]:  # noqa: ANN401
        return [
            # The server hands inputs over in the host's memory, wherever the model is.
            from_dlpack(pb_utils.get_input_tensor_by_name(request, name).to_dlpack()).to(
                self._device
            )
            for name in self._input_names
        ]

    def _run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        with torch.inference_mode():
            outputs = self._model(*inputs)
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        # To the host, where the server sends them from. It also waits for a GPU, which computes
        # on after the model has returned: else the seconds would be those of handing it over.
        return tuple(output.cpu() for output in outputs)

    def _response(self, outputs: Sequence[torch.Tensor], seconds: float) -> Any:  # noqa: ANN401
        named = dict(zip(self._output_names, outputs, strict=True))
        if self._is_timed:
            named[_COMPUTE_SECONDS] = torch.full((len(outputs[0]), 1), seconds)
        # Contiguous, because the server reads the buffer as it lies.
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor.from_dlpack(name, to_dlpack(output.contiguous()))
                for name, output in named.items()
            ]
        )


def _set_long_lived_aside() -> None:
    """Collects garbage from here on, without walking torch's 166,000 objects amid a batch.

    A full collection takes 90 ms with them, as long as three searches, and frees none of them.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.collect()  # The next full one waits for a quarter of what this one keeps: nothing.


def _device(args: dict[str, str]) -> str:
    if args["model_instance_kind"] == "GPU":
        return f"cuda:{args['model_instance_device_id']}"
    return "cpu"


def _loaded(path: Path, device: str) -> tuple[Callable[..., Any], list[str]]:
    """Returns the model on its device, and the names of forward's arguments in their order."""
    if path.suffix == ".pt2":
        # Inside, because TorchScript, which most models are, starts sooner without.
        importlib.import_module(_SHAPES)
        from torch.export.passes import move_to_device_pass

        program = torch.export.load(str(path))
        arguments = [str(name) for name in program.graph_signature.user_inputs]
        if device != "cpu":
            program = move_to_device_pass(program, device)
        return program.module(), arguments
    model = torch.jit.load(str(path), map_location=device).eval()
    return model, [argument.name for argument in model.forward.schema.arguments][1:]  # less self


def _in_forward_order(names: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Returns the configured inputs in the order in which forward takes them."""
    if sorted(names) == sorted(arguments):
        return list(arguments)
    if len(names) != len(arguments):
        raise ValueError(f"inputs {names} for forward's arguments {arguments}")
    return _by_position(names)


def _by_position(names: Sequence[str]) -> list[str]:
    """Returns the names in the order of their numbers, which must be 0 and on."""
    name_at = {int(match[1]): name for name in names if (match := _BY_POSITION.match(name))}
    if sorted(name_at) != list(range(len(names))):
        raise ValueError(f"{names} are not NAME__0, NAME__1 and on")
    return [name_at[number] for number in range(len(names))]
