"""A running Triton moved from one version of the model to another, with every version tried first.

One version more is loaded while the old one serves; services come to it once it is found fit; the
old one is unloaded when nobody asks for it any more. So at no time is there none.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace

from tandem.errors import ModelOutputInvalid, TandemError
from tandem.local.stack import LocalStack
from tandem.model_io.manifest import Manifest
from tandem.model_io.model_version import (
    FIRST_VERSION,
    ModelVersion,
    Serving,
    serving,
    set_aside,
    version_folder,
    wanted,
    write_serving,
)
from tandem.model_io.served_joint_model import ServedJointModel
from tandem.model_io.swap_attendance import SwapAttendance
from tandem.model_io.triton_client import TritonClient
from tandem.model_io.triton_server import TritonServer, TritonUnavailable
from tandem.model_io.triton_versions import TritonRefused, TritonVersions
from tandem.model_io.version_check import check_version

# Services that have not come to the new version yet ask for the old one each second, by their
# canaries; a search that began by it may do so a little later than they do.
_QUIET_SECONDS = 5.0
# What says of a version itself that it cannot serve: its files, its answers, or Triton's word of
# its load. Whatever else goes wrong may be of a machine that is busy, and passes.
_UNFIT = (ValueError, ModelOutputInvalid, TritonRefused)


class VersionSwaps:
    """Does what `tandem models swap` asks for, each time that it is told to look."""

    def __init__(self, stack: LocalStack, manifest: Manifest) -> None:
        self._stack = stack
        self._manifest = manifest
        self._repository = stack.model_repository
        self._leaving: int | None = None
        """What Triton may still have loaded, and is asked for no more."""
        self._unwritten: Serving | None = None
        """What became of a request, while no disk takes it."""
        self._attendance = SwapAttendance(self._repository)

    def close(self) -> None:
        """Makes no more swaps, and lets who would ask for one know."""
        self._attendance.close()

    def look(self) -> str | None:
        """Goes on with a swap; returns a line about one that was made or refused just now.

        An outcome that cannot be written, as on a full disk, is told once and written by a later
        look; until then all stays as it was. Raises ValueError for files of the repository that do
        not say what serves.
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
            self._attendance.tell("")
            return self._write(replace(now, request_id=request.request_id, refusal=why))
        self._attendance.tell("")
        return self._write(Serving(version=request.version, request_id=request.request_id))

    def _write(self, outcome: Serving) -> str | None:
        before = serving(self._repository).version
        try:
            write_serving(self._repository, outcome)
        except OSError as error:
            if self._unwritten is not None:
                return None  # it was told when it was new
            self._unwritten = outcome
            return (
                f"version {before} goes on serving: {self._repository} cannot be written to "
                f"({error.strerror}); make room, and the swap goes on by itself"
            )
        self._unwritten = None
        if outcome.refusal:
            return f"version {outcome.version} goes on serving: {outcome.refusal}"
        if outcome.version != before:
            self._leaving = before
        return f"version {outcome.version} serves"

    def _write_late(self, server: TritonServer, outcome: Serving) -> str | None:
        with suppress(TritonUnavailable):
            if TritonVersions(server).is_loaded(outcome.version):
                return self._write(outcome)
            # Triton was restarted meanwhile, and has what served before: the swap begins anew.
            self._unwritten = None
        return None

    def _take(self, server: TritonServer, version: int, before: int) -> None:
        """Loads a version and tries it; one that is not taken is unloaded again."""
        folder = version_folder(self._repository, version)
        self._attendance.tell(f"version {version}: its files are checked")
        if version == FIRST_VERSION:
            self._manifest.verify(self._repository)
        else:
            # Before Triton sees it: to load a file is to run what is in it.
            ModelVersion.read(folder).verify(folder, self._manifest)
        versions = TritonVersions(server)
        self._attendance.tell(f"version {version}: Triton loads it")
        try:
            versions.load(version)
        except TritonUnavailable:
            self._leaving = version  # if Triton is late, it may come to have it all the same
            raise
        self._attendance.tell(f"version {version}: its answers are held to version {before}'s")
        try:
            asyncio.run(self._try(server.address, version, before))
        except BaseException:
            try:
                versions.unload(version)
            except TritonUnavailable:  # why the version is not taken is what counts
                self._leaving = version
            raise

    async def _try(self, address: str, version: int, before: int) -> None:
        client = TritonClient(address)
        try:
            model = ServedJointModel(client, self._manifest, before)
            await check_version(model.at(version), model)
        finally:
            await client.close()

    def _refusal(self, version: int, error: Exception) -> str:
        why = getattr(error, "message", None) or str(error)
        if version == FIRST_VERSION:
            return f"version {version} is refused: {why}"
        if not isinstance(error, _UNFIT):
            return (
                f"version {version} could not be tried, and stays to be asked for again "
                f"(tandem models swap --to {version}): {why}"
            )
        aside = set_aside(self._repository, version)
        return f"version {version} is refused and lies in {aside.name}: {why}"

    def _retire(self, server: TritonServer, version: int) -> None:
        versions = TritonVersions(server)
        # Where Triton is late or lost, the next look tries again; TritonWatch restarts it at need.
        with suppress(TritonUnavailable):
            if not versions.is_loaded(version):
                # It is unloaded, or Triton was restarted meanwhile, and has what serves alone.
                server.recount_processes()
                self._leaving = None
            elif versions.idle_seconds(version) >= _QUIET_SECONDS:
                versions.unload(version)
                self._leaving = None
