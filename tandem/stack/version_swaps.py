"""Swaps the model version of a running Triton, after checking the new one.

Triton loads the new version while the old one serves. Services switch once the new one is verified,
and the old one is unloaded when no service uses it. So one version always serves.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace

from tandem.errors import ModelOutputInvalid, TandemError
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.version_check import check_version
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.model_version import (
    FIRST_VERSION,
    ModelVersion,
    Serving,
    serving,
    set_aside,
    version_folder,
    wanted,
    write_serving,
)
from tandem.model_io.repository.swap_attendance import SwapAttendance
from tandem.stack.stack import LocalStack
from tandem.triton.client import TritonClient
from tandem.triton.server import TritonServer, TritonUnavailable
from tandem.triton.versions import TritonRefused, TritonVersions

# Services that have not switched yet use the old version in their canaries each second; a search
# that started with it may use it a little longer.
_QUIET_SECONDS = 5.0
# Errors that prove a version unfit: of its files, its answers, or Triton's load. Other errors may
# come from a busy machine, and pass.
_UNFIT = (ValueError, ModelOutputInvalid, TritonRefused)


class VersionSwaps:
    """Carries out the requests of `tandem models swap` on each `look`."""

    def __init__(self, stack: LocalStack, manifest: Manifest) -> None:
        self._stack = stack
        self._manifest = manifest
        self._repository = stack.model_repository
        self._leaving: int | None = None
        """Old versions that Triton may still have loaded."""
        self._unwritten: Serving | None = None
        """The outcome of a request that could not be written yet."""
        self._attendance = SwapAttendance(self._repository)

    def close(self) -> None:
        """Stops swapping, and lets later requests fail."""
        self._attendance.close()

    def look(self) -> str | None:
        """Continues a swap; returns a line about a swap that was just completed or refused.

        An outcome that cannot be written, for example on a full disk, is reported once and written
        later; until then everything stays. Raises ValueError if the repository's files are invalid.
        """
        server = self._stack.triton
        if server is None:
            return None
        if self._unwritten is not None:
            return self._write_late(server, self._unwritten)
        if self._leaving is not None:
            self._retire(server, self._leaving)
            return None
        request, now = wanted(self._repository), serving(self._repository)
        if request is None or request.request_id == now.request_id:
            return None
        try:
            if request.version != now.version:
                self._take(server, request.version, now.version)
        except (OSError, TandemError, TritonUnavailable, ValueError) as error:
            why = self._refusal(request.version, error)
            self._attendance.record_stage("")
            return self._write(replace(now, request_id=request.request_id, refusal=why))
        self._attendance.record_stage("")
        return self._write(Serving(version=request.version, request_id=request.request_id))

    def _write(self, outcome: Serving) -> str | None:
        before = serving(self._repository).version
        try:
            write_serving(self._repository, outcome)
        except OSError as error:
            if self._unwritten is not None:
                return None  # It was reported before.
            self._unwritten = outcome
            return (
                f"version {before} keeps serving: {self._repository} cannot be written to "
                f"({error.strerror}); make room, and the swap continues"
            )
        self._unwritten = None
        if outcome.refusal:
            return f"version {outcome.version} keeps serving: {outcome.refusal}"
        if outcome.version != before:
            self._leaving = before
        return f"version {outcome.version} serves"

    def _write_late(self, server: TritonServer, outcome: Serving) -> str | None:
        with suppress(TritonUnavailable):
            if TritonVersions(server).is_loaded(outcome.version):
                return self._write(outcome)
            # Triton was restarted with the old version: the swap starts again.
            self._unwritten = None
        return None

    def _take(self, server: TritonServer, version: int, before: int) -> None:
        """Loads a version and verifies it; unloads it if it is refused."""
        folder = version_folder(self._repository, version)
        self._attendance.record_stage(f"version {version}: its files are checked")
        if version == FIRST_VERSION:
            self._manifest.verify(self._repository)
        else:
            # Before Triton sees it, because loading a file runs its code.
            ModelVersion.read(folder).verify(folder, self._manifest)
        versions = TritonVersions(server)
        self._attendance.record_stage(f"version {version}: Triton loads it")
        try:
            versions.load(version)
        except TritonUnavailable:
            self._leaving = version  # Triton may still load it later.
            raise
        self._attendance.record_stage(f"version {version}: compared with version {before}")
        try:
            asyncio.run(self._try(server.address, version, before))
        except BaseException:
            try:
                versions.unload(version)
            except TritonUnavailable:  # The reason of the refusal matters more.
                self._leaving = version
            raise

    async def _try(self, address: str, version: int, before: int) -> None:
        client = TritonClient(address)
        try:
            model = ServedModel(client, self._manifest, before)
            await check_version(model.at(version), model)
        finally:
            await client.close()

    def _refusal(self, version: int, error: Exception) -> str:
        why = getattr(error, "message", None) or str(error)
        if version == FIRST_VERSION:
            return f"version {version} is refused: {why}"
        if not isinstance(error, _UNFIT):
            return (
                f"version {version} could not be tested and is kept; retry with "
                f"tandem models swap --to {version}: {why}"
            )
        aside = set_aside(self._repository, version)
        return f"version {version} is refused and moved to {aside.name}: {why}"

    def _retire(self, server: TritonServer, version: int) -> None:
        versions = TritonVersions(server)
        # If Triton is slow or gone, the next look tries again; TritonWatch restarts it.
        with suppress(TritonUnavailable):
            if not versions.is_loaded(version):
                # It is unloaded, or Triton was restarted with only the serving version.
                server.recount_processes()
                self._leaving = None
            elif versions.idle_seconds(version) >= _QUIET_SECONDS:
                versions.unload(version)
                self._leaving = None
