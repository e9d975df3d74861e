"""Runs an exported model in this process, where `tandem.Engine` has no Triton."""

import asyncio
import importlib.util
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tandem.errors import DeadlineExceeded
from tandem.model_io.inference.model_runner import ModelAnswer, OutputSpec, check_output
from tandem.model_io.inference.served_model import Instances
from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.priority import Priority
from tandem.modeling.in_process.model_threads import ModelThreads

if TYPE_CHECKING:
    from tandem.modeling.in_process.loaded_parts import LoadedParts


class InProcessRunner:
    """Runs inferences in threads of its own, as many at once as Triton has instances.

    With a single core there is one, since two would only wait for each other.
    """

    def __init__(self, repository: Path, manifest: Manifest) -> None:
        """Loads nothing yet: `begin_loading`, or else the first inference, does.

        All inferences together compute with as many threads as there are cores. Raises
        ModuleNotFoundError without torch.
        """
        if importlib.util.find_spec("torch") is None:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        self._manifest = manifest
        self._repository = repository
        count = len(os.sched_getaffinity(0))
        # Requests are not batched here, so none waits for another.
        self.instances = Instances(min(INSTANCE_COUNT, count), apart_seconds=0.0)
        self._thread_count = count // self.instances.count
        self._own = threading.local()
        self._threads = ModelThreads(self.instances.count, "model")
        self._parts: Future[LoadedParts] | None = None
        self._lock = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        return self._parts is not None and self._parts.done()

    def begin_loading(self) -> "Future[LoadedParts]":
        """Begins to load the model in the background, unless it has begun.

        Importing torch takes seconds, and holds the interpreter for much of them. So call this
        after everything else that the program does at its start.
        """
        with self._lock:
            if self._parts is None:
                self._parts = self._threads.submit(self._loaded)
            return self._parts

    def wait_until_loaded(self) -> None:
        """Returns once every part is loaded; raises ModelUnavailable for one that is not there."""
        self.begin_loading().result()

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[OutputSpec],
        timeout_seconds: float,
        priority: Priority = Priority.INGEST,
        version: int | None = None,
    ) -> ModelAnswer:
        """Returns the outputs, each [B, *dims], in the requested order.

        Raises ModelUnavailable for a file that is missing or cannot be loaded, DeadlineExceeded,
        InternalFault if the model refuses its inputs, and ModelOutputInvalid for a wrong shape or
        dtype, or NaN. A started inference runs to its end, even if its caller gives up.
        """
        start_time = time.perf_counter()
        parts = self.begin_loading()
        run = partial(self._run, parts, model, version, inputs, outputs)
        try:
            async with asyncio.timeout(timeout_seconds):
                arrays, compute_seconds = await self._threads.run(run)
        except TimeoutError as error:
            raise DeadlineExceeded(what=f"the inference of {model}") from error
        batch = len(next(iter(inputs.values())))
        for spec, array in zip(outputs, arrays, strict=True):
            check_output(model, spec, array, batch)
        waited_seconds = time.perf_counter() - start_time - compute_seconds
        return ModelAnswer(arrays, compute_seconds, max(0.0, waited_seconds))

    def is_proven(self, model: str) -> bool:
        """Returns True: a canary would show nothing, because no process can die here."""
        return self._parts is not None and self._parts.done() and not self._parts.exception()

    async def check_working(self, model: str) -> None:
        """Raises DeadlineExceeded: only a model that still loads has canaries."""
        raise DeadlineExceeded(what=f"the inference of {model}")

    def check_processes(self) -> None:
        """Does nothing: there is no process that could be dead."""

    def close(self) -> None:
        """Waits for inferences that have begun, and ends the threads."""
        self._threads.close()

    def _run(
        self,
        parts: "Future[LoadedParts]",
        model: str,
        version: int | None,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[OutputSpec],
    ) -> tuple[list[NDArray[Any]], float]:
        loaded = parts.result()
        self._keep_to_own_cores()
        return loaded.run(model, version, inputs, outputs)

    def _loaded(self) -> "LoadedParts":
        # Imported here, because torch takes seconds; meanwhile the stores are opened.
        from tandem.modeling.in_process.loaded_parts import LoadedParts

        parts = LoadedParts(self._repository, self._manifest)
        for name in self._manifest.models:
            parts.load(name)
        return parts

    def _keep_to_own_cores(self) -> None:
        """Limits torch in the calling thread, once."""
        if getattr(self._own, "is_kept", False):
            return
        from tandem.modeling.in_process.loaded_parts import keep_torch_to

        keep_torch_to(self._thread_count)
        self._own.is_kept = True
