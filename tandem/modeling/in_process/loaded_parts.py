"""Holds the parts of an exported model as a process runs them itself, without Triton."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tandem.errors import InternalFault, ModelUnavailable
from tandem.model_io.inference.model_runner import OutputSpec
from tandem.model_io.repository.manifest import Manifest, model_file, pt2_file
from tandem.model_io.repository.model_version import FIRST_VERSION, version_folder
from tandem.modeling.export.exported import ExportMismatch, load_part, part_answers

# What a model raises: by its operators, by a raise of its own, or by an archive's guards.
_FAULTS = (RuntimeError, torch.jit.Error, AssertionError)


def keep_torch_to(thread_count: int) -> None:
    """Makes torch compute with so many threads where this thread calls it, and only there."""
    before = torch.get_num_threads()
    torch.set_num_threads(thread_count)
    # torch also takes the number for threads that begin later, which are the program's own.
    giving_back = threading.Thread(target=torch.set_num_threads, args=(before,))
    giving_back.start()
    giving_back.join()


class LoadedParts:
    """Loads each part once, and runs it. Its methods block, for use in threads."""

    def __init__(self, repository: Path, manifest: Manifest) -> None:
        # As Triton's backend does: else it would compile again for each new shape.
        torch.jit.set_fusion_strategy([])
        self._repository = repository
        self._manifest = manifest
        self._parts: dict[tuple[str, int], Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def load(self, name: str, version: int | None = None) -> Callable[..., Any]:
        """Returns a part; raises ModelUnavailable if its file is missing or is not one."""
        key = (name, version or FIRST_VERSION)
        with self._lock:
            if key not in self._parts:
                try:
                    self._parts[key] = load_part(self._file(*key))
                except (ExportMismatch, OSError, ValueError) as error:
                    raise ModelUnavailable(model=name, why=str(error)) from error
            return self._parts[key]

    def run(
        self,
        name: str,
        version: int | None,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[OutputSpec],
    ) -> tuple[list[NDArray[Any]], float]:
        """Returns the outputs, and the seconds that the part took.

        Raises ModelUnavailable, and InternalFault if the part refuses its inputs.
        """
        part = self.load(name, version)
        start_time = time.perf_counter()
        given = tuple(_tensor(inputs[f"INPUT__{number}"]) for number in range(len(inputs)))
        try:
            answers = part_answers(part, given)
        except _FAULTS as error:
            # TorchScript's errors open with where the model was traced; what went wrong ends them.
            why = str(error).strip().rpartition("\n")[2]
            raise InternalFault(why=f"model {name} refuses its inputs: {why}") from error
        arrays = [answers[int(spec.name.rpartition("__")[2])].numpy() for spec in outputs]
        return arrays, time.perf_counter() - start_time

    def _file(self, name: str, version: int) -> Path:
        first = model_file(self._repository, name)
        if version != FIRST_VERSION:
            return version_folder(self._repository, version) / first.name
        return first if first.exists() else pt2_file(self._repository, name)


def _tensor(values: NDArray[np.generic]) -> torch.Tensor:
    # torch warns of memory that it may not write to.
    whole = np.ascontiguousarray(values)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy())
