"""Loads and unloads versions of the joint encoder in a running local Triton.

It never makes an unload call, which would end all versions of a model, and the searches on them.
"""

import time
from collections.abc import Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.model_io.repository.manifest import JOINT_ENCODER
from tandem.model_io.repository.model_version import version_folder
from tandem.triton.server import TritonServer, TritonUnavailable

_TIMEOUT_SECONDS = 5.0
# Loading a version starts Python and torch for each instance, and warms it up.
_LOAD_SECONDS = 120.0
_UNLOAD_SECONDS = 10.0


# The server is late, shutting down or missing: the request itself was not judged.
_UNANSWERED = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)


class TritonRefused(TritonUnavailable):
    """Triton reported that it cannot do what was requested, such as load a damaged model."""


class TritonVersions:
    """Changes the loaded versions of a swappable server."""

    def __init__(self, server: TritonServer) -> None:
        self._server = server

    def load(self, version: int) -> None:
        """Loads a version in addition to those that serve; returns when it is ready.

        Raises TritonRefused with Triton's reason, or TritonUnavailable if there is none in time;
        the other versions continue to serve.
        """
        link = self._server.loaded_folder(JOINT_ENCODER) / str(version)
        link.symlink_to(version_folder(self._server.model_repository, version).resolve())
        try:
            self._load()
        except TritonUnavailable:
            link.unlink()
            raise
        self._server.recount_processes()

    def unload(self, version: int) -> None:
        """Unloads a version; its calls in progress finish, later ones fail.

        Returns when its processes have ended, or are slow to end. Raises TritonUnavailable if
        Triton does not answer: then the version may be loaded or not, processes that end do not
        count as lost, and the call can be retried.
        """
        self._server.recount_processes(are_some_ending=True)
        (self._server.loaded_folder(JOINT_ENCODER) / str(version)).unlink(missing_ok=True)
        # On a load call Triton reads the folder again: existing versions stay as they are, and
        # missing ones are unloaded.
        self._load()
        deadline_time = time.monotonic() + _UNLOAD_SECONDS
        while self.is_loaded(version) and time.monotonic() < deadline_time:
            time.sleep(0.1)
        self._server.recount_processes()

    def is_loaded(self, version: int) -> bool:
        """Returns whether Triton has the version, or is still unloading it; errors as `unload`."""
        request = service_pb2.RepositoryIndexRequest()
        index = self._call(lambda stub: stub.RepositoryIndex(request, timeout=_TIMEOUT_SECONDS))
        return any(
            (model.name, model.version) == (JOINT_ENCODER, str(version))
            and model.state in ("LOADING", "READY", "UNLOADING")
            for model in index.models
        )

    def idle_seconds(self, version: int) -> float:
        """Returns the seconds since a version's last request; raises TritonUnavailable."""
        request = service_pb2.ModelStatisticsRequest(name=JOINT_ENCODER, version=str(version))
        statistics = self._call(
            lambda stub: stub.ModelStatistics(request, timeout=_TIMEOUT_SECONDS)
        )
        # In milliseconds since the epoch; 0 means never.
        last_time = float(statistics.model_stats[0].last_inference) / 1e3
        return max(0.0, time.time() - last_time)

    def _load(self) -> None:
        request = service_pb2.RepositoryModelLoadRequest(model_name=JOINT_ENCODER)
        self._call(lambda stub: stub.RepositoryModelLoad(request, timeout=_LOAD_SECONDS))

    def _call(self, ask: Callable[[service_pb2_grpc.GRPCInferenceServiceStub], Any]) -> Any:  # noqa: ANN401 (Triton's own types)
        # Loopback needs no proxy.
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(self._server.address, options=options) as channel:
            try:
                return ask(service_pb2_grpc.GRPCInferenceServiceStub(channel))
            except grpc.RpcError as error:
                # The fault comes first, then its location in Triton and torch.
                first_line = (error.details() or error.code().name).partition("\n")[0]
                kind = TritonUnavailable if error.code() in _UNANSWERED else TritonRefused
                raise kind(first_line) from error
