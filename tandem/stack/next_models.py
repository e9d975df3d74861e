"""Runs the services of a second model next to a local stack, which does not depend on them."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.model_repository import our_manifest
from tandem.stack.memory import MIB, available_bytes, needed_bytes
from tandem.stack.stack import Endpoint, LocalStack
from tandem.stack.start_refused import StartRefused
from tandem.stack.triton_watch import TritonWatch
from tandem.triton.server import TritonUnavailable

NEXT = "next-"
"""Begins the names of the processes."""
_RESTART_SECONDS = 10.0


class NextModels(LocalStack):
    """Starts and stops a Triton, an encoder and the rerankers over a stack's stores."""

    def service_names(self) -> list[str]:
        """Returns the services in the order of a query's path."""
        return [f"{NEXT}encoder", *(f"{NEXT}rerank-{n}" for n in range(len(self.ports.rerank)))]

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Returns the arguments and variables of a service's process."""
        return super().command(name.removeprefix(NEXT))

    def endpoints(self) -> Iterator[Endpoint]:
        """Yields every running process."""
        for each in super().endpoints():
            yield replace(each, name=_named(each.name))

    def variables(self) -> Mapping[str, str]:
        """Returns the settings by which an orchestrator calls the services."""
        encoder, *rerankers = map(self.address_of, self.service_names())
        return {
            "ORCHESTRATOR_NEXT_ENCODER_ADDRESS": encoder,
            "ORCHESTRATOR_NEXT_RERANK_ADDRESSES": ",".join(rerankers),
        }

    def start_ended(self) -> str | None:
        """Starts a service again that has ended by itself, and returns how it ended."""
        for name, process in self._processes.items():
            if (status := process.poll()) is not None:
                self.start_service(name)
                return f"{name} ended with {status}, and was started again"
        return None

    def give_way(self, is_needed_elsewhere: Callable[[], bool]) -> None:
        """Gives up a later start of Triton while this is true."""
        self._should_stop = is_needed_elsewhere

    def _port(self, name: str) -> int:
        return super()._port(name.removeprefix(NEXT))

    def _log_path(self, name: str) -> Path:
        return super()._log_path(_named(name))


class NextWatch(TritonWatch):
    """Starts again what ends of a next model, and raises nothing: the other continues to serve."""

    def __init__(self, models: NextModels, manifest: Manifest) -> None:
        super().__init__(models, manifest)
        self.models = models
        self._look_time = 0.0

    def look(self) -> str | None:
        """Returns what was started again, or why it cannot be; it is tried again later."""
        if time.monotonic() < self._look_time:
            return None
        self.models.bound_logs()
        try:
            line = self.models.start_ended()
            if not line and (why := super().look()):
                line = f"{NEXT}triton was restarted: {why}"
        except (TritonUnavailable, ValueError) as error:
            line = f"{NEXT}triton: {error}".splitlines()[0]
        if line:
            self._look_time = time.monotonic() + _RESTART_SECONDS
        return line


def next_manifest(
    repository: Path, serving_repository: Path, serving: Manifest, shard_count: int
) -> Manifest:
    """Returns the manifest of the next model.

    Raises StartRefused if it is the serving one or both exceed this machine's memory, and
    ValueError for files that are not whole.
    """
    (manifest := our_manifest(repository)).verify(repository)
    if manifest.fingerprint == serving.fingerprint:
        raise StartRefused(
            f"{repository} holds model {manifest.fingerprint[:12]}, as {serving_repository} does: "
            "give --next the repository of another model, or leave it out"
        )
    both = (serving_repository, serving), (repository, manifest)
    needed = sum(needed_bytes(*each, shard_count) for each in both)
    if needed > (left := available_bytes()):
        raise StartRefused(
            f"both models need about {needed / MIB:,.0f} MiB of memory, and {left / MIB:,.0f} MiB "
            "are available here: end other programs, raise the container's limit, add one of the "
            "models in another precision, or leave out --next"
        )
    return manifest


def _named(name: str) -> str:
    return name if name.startswith(NEXT) else f"{NEXT}{name}"
