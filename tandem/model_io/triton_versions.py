"""Versions of the joint encoder in a running local Triton: one more loaded, one taken away.

Never an unload call: it ends every version of a model at once, and searches with them.
"""

import time
from collections.abc import Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.model_io.manifest import JOINT_ENCODER
from tandem.model_io.model_version import version_folder
from tandem.model_io.triton_server import TritonServer, TritonUnavailable

_TIMEOUT_SECONDS = 5.0
# Loading a version starts Python and torch for each of its instances, and warms them.
_LOAD_SECONDS = 120.0
_UNLOAD_SECONDS = 10.0


# Of a server that is late, leaving or not there: nothing was said of what was asked.
_UNANSWERED = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)


class TritonRefused(TritonUnavailable):
    """Triton answered that it cannot do what it was told, such as load a damaged model."""


class TritonVersions:
    """Changes what a swappable server has loaded."""

    def __init__(self, server: TritonServer) -> None:
        self._server = server

    def load(self, version: int) -> None:
        """Loads a version beside what serves; returns when it is ready.

        Raises TritonRefused with Triton's reason, TritonUnavailable where it gives none in time;
        what served goes on serving.
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
        """Unloads a version; its calls that are under way end, later ones find nothing.

        Returns when its processes have ended, or are slow to. Raises TritonUnavailable where Triton
        does not answer: then it may be unloaded or not, no process that ends is taken for lost, and
        the same call can be made again.
        """
        self._server.recount_processes(are_some_ending=True)
        (self._server.loaded_folder(JOINT_ENCODER) / str(version)).unlink(missing_ok=True)
        # Told to load, Triton looks at the folder again: versions that are still there stay as they
        # are, and one that is not is unloaded.
        self._load()
        deadline_time = time.monotonic() + _UNLOAD_SECONDS
        while self.is_loaded(version) and time.monotonic() < deadline_time:
            time.sleep(0.1)
        self._server.recount_processes()

    def is_loaded(self, version: int) -> bool:
        """Returns whether Triton has the version, or is about it still; errors as `unload`."""
        request = service_pb2.RepositoryIndexRequest()
        told = self._call(lambda stub: stub.RepositoryIndex(request, timeout=_TIMEOUT_SECONDS))
        return any(
            (model.name, model.version) == (JOINT_ENCODER, str(version))
            and model.state in ("LOADING", "READY", "UNLOADING")
            for model in told.models
        )

    def idle_seconds(self, version: int) -> float:
        """Returns for how long nothing was asked of a version; raises TritonUnavailable."""
        request = service_pb2.ModelStatisticsRequest(name=JOINT_ENCODER, version=str(version))
        told = self._call(lambda stub: stub.ModelStatistics(request, timeout=_TIMEOUT_SECONDS))
        # In milliseconds of the day's clock; 0 for never.
        last_time = float(told.model_stats[0].last_inference) / 1e3
        return max(0.0, time.time() - last_time)

    def _load(self) -> None:
        request = service_pb2.RepositoryModelLoadRequest(model_name=JOINT_ENCODER)
        self._call(lambda stub: stub.RepositoryModelLoad(request, timeout=_LOAD_SECONDS))

    def _call(self, ask: Callable[[service_pb2_grpc.GRPCInferenceServiceStub], Any]) -> Any:  # noqa: ANN401 (Triton's own types)
        # Nobody's proxy is asked the way to loopback.
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(self._server.address, options=options) as channel:
            try:
                return ask(service_pb2_grpc.GRPCInferenceServiceStub(channel))
            except grpc.RpcError as error:
                # What went wrong comes first, then where in Triton and in torch.
                first_line = (error.details() or error.code().name).partition("\n")[0]
                kind = TritonUnavailable if error.code() in _UNANSWERED else TritonRefused
                raise kind(first_line) from error
