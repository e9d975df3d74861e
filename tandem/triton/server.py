"""Runs a real tritonserver as a child process: the binary in the nvidia-pytriton wheel.

It is for machines without containers. In production the official image serves the repository.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT, timed
from tandem.model_io.repository.manifest import JOINT_ENCODER, read_manifest
from tandem.model_io.repository.model_repository import idle_configs
from tandem.model_io.repository.model_version import (
    FIRST_VERSION,
    serving,
    verify_serving_version,
    version_numbers,
)
from tandem.platform.child_processes.keeper import ProcessKeeper, work_place
from tandem.platform.child_processes.private_log import private_log
from tandem.triton.install import TritonUnavailable as TritonUnavailable
from tandem.triton.install import core_count as core_count
from tandem.triton.install import (
    make_backends,
    stub_in,
    triton_environment,
    wheel_folder,
)

_HOST = "127.0.0.1"
_START_SECONDS = 120.0
# On a busy machine Triton 2.51 aborts (lock_exception) if a stub gets no CPU for a second, and ends
# by SIGSEGV if a caller's deadline passes as it answers (decision 29).
_CRASHES = (signal.SIGABRT, signal.SIGSEGV)
_START_ATTEMPTS = 3
_STOP_SECONDS = 10.0
_BURIAL_SECONDS = 2.0
# Log lines that do not explain why the server ended: lines that begin with I or W and the date,
# tables, and an error that it prints on every machine without a GPU.
_CHATTER = re.compile(r"[IW]\d{4} |[|+]|$|.*CudaDriverHelper")
_SHARED_MEMORY = Path("/dev/shm")


class _Crashed(TritonUnavailable):
    """The server crashed while starting."""


class TritonServer:
    """Starts and stops one server on loopback, which loads the models that exist at start.

    Of the joint encoder it loads only the version that the repository records as serving.
    """

    def __init__(
        self,
        *,
        model_repository: Path,
        grpc_port: int,
        metrics_port: int,
        log_path: Path,
        thread_count: int | None = None,
        is_swappable: bool = False,
        keeper: ProcessKeeper | None = None,
    ) -> None:
        """`thread_count` is the number of cores that one inference may use.

        By default each instance of a model has an equal share of them. However this process ends,
        `keeper` then ends the server; by default it creates one. Only a swappable server accepts
        load and unload calls, which any user of this machine can then send, and which can run the
        sender's code.
        """
        self._is_swappable = is_swappable
        self._model_repository = model_repository
        self._grpc_port = grpc_port
        self._metrics_port = metrics_port
        self._log_path = log_path
        self._thread_count = thread_count or max(1, core_count() // INSTANCE_COUNT)
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._process_count = 0
        self._work_folder: Path | None = None
        self._own_keeper = ProcessKeeper() if keeper is None else None
        self._keeper = keeper or self._own_keeper or ProcessKeeper()
        # Names our shared-memory regions, so that only ours are removed.
        self._region_prefix = f"{self._keeper.region_prefix}{secrets.token_hex(4)}_"

    @staticmethod
    def check_installed() -> None:
        """Raises TritonUnavailable, with what to do, if no server can run on this machine."""
        stub_in(wheel_folder())

    @property
    def pid(self) -> int:
        """The server's process id; raises TritonUnavailable if it is not running."""
        if self._process is None:
            raise TritonUnavailable("Triton was not started")
        return self._process.pid

    def is_running(self) -> bool:
        """Returns whether the process is alive; its models may still not answer."""
        return self._process is not None and self._process.poll() is None

    def start(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Returns when every model of the repository is ready.

        A server that crashes is started again, three times at most. Raises TritonUnavailable with
        the cause: `should_stop` became true, no wheel, no models, a damaged serving version, a port
        in use, or the end of the server's log.
        """
        wheel = wheel_folder()
        model_names = _model_names(self._model_repository)
        _check_serving_version(self._model_repository)
        # Otherwise another server's models on that port would be taken for ours.
        _check_port_is_free(self._grpc_port)
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            try:
                self._start(wheel, model_names, should_stop)
                return
            except _Crashed as error:
                if not attempts_left:
                    raise TritonUnavailable(
                        f"{error}\nIt crashed {_START_ATTEMPTS} times, as on a busy machine: start "
                        "it again when less runs here"
                    ) from None

    def ending(self) -> str | None:
        """Returns how the server ended by itself, with its log's end; None while it runs."""
        if self._process is None or (status := self._process.poll()) is None:
            return None
        return f"Triton ended {_by(status)}\n{self._log_tail()}"

    def has_lost_process(self) -> bool:
        """Returns whether a process of the server, such as a model's instance, has ended.

        Triton then still reports itself ready, and fails the calls of that instance.
        """
        return self._process is not None and _running_count(self._process.pid) < self._process_count

    @property
    def address(self) -> str:
        """host:port of its gRPC endpoint."""
        return f"{_HOST}:{self._grpc_port}"

    @property
    def model_repository(self) -> Path:
        """The model repository that it serves."""
        return self._model_repository

    def loaded_folder(self, model: str) -> Path:
        """Returns the folder from which the server loads a model; raises TritonUnavailable."""
        if self._work_folder is None:
            raise TritonUnavailable("Triton was not started")
        return self._work_folder / "models" / model

    def recount_processes(self, *, are_some_ending: bool = False) -> None:
        """Expects the processes that run now from here on; none if some are ending."""
        self._process_count = 0 if are_some_ending else _running_count(self.pid)

    def stop(self) -> None:
        """Ends the server and its stubs; returns when all have exited and their memory is freed."""
        if self._process is not None:
            group = self._process.pid  # the first process of a session leads its group
            if self._process.poll() is None:
                os.kill(self._process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_STOP_SECONDS)
            # A stub can outlive its server and ignores SIGTERM.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
                self._process.wait()
                _wait_until_gone(group)
            self._process = None
        for region in _SHARED_MEMORY.glob(f"{self._region_prefix}*"):
            region.unlink(missing_ok=True)
        if self._work_folder is not None:
            shutil.rmtree(self._work_folder, ignore_errors=True)
            self._work_folder = None
        if self._own_keeper is not None:
            self._own_keeper.close()

    def _start(
        self, wheel: Path, model_names: Sequence[str], should_stop: Callable[[], bool]
    ) -> None:
        prefix = self._keeper.work_folder_prefix
        self._work_folder = Path(tempfile.mkdtemp(prefix=prefix, dir=work_place()))
        try:
            backends = make_backends(wheel, self._work_folder)
            repository = _make_repository(
                self._model_repository, self._work_folder, is_swappable=self._is_swappable
            )
            self._process = self._launch(wheel, backends, repository, self._work_folder)
            self._wait_until_ready(self._process, model_names, should_stop)
            self._process_count = _running_count(self._process.pid)
        except BaseException:
            self.stop()
            raise

    def _launch(
        self, wheel: Path, backends: Path, repository: Path, work_folder: Path
    ) -> subprocess.Popen[bytes]:
        with private_log(self._log_path) as log:
            self._log_start = log.tell()  # earlier lines are of earlier runs
            return subprocess.Popen(
                self._command(wheel, backends, repository),
                env=triton_environment(wheel, self._thread_count) | self._keeper.mark(),
                # The stubs' Python searches its working directory for modules first.
                cwd=work_folder,
                umask=0o077,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A separate process group, which includes its stubs, so that all end together.
                start_new_session=True,
            )

    def _command(self, wheel: Path, backends: Path, repository: Path) -> list[str]:
        # With "none" it accepts no load calls, which can run the sender's code.
        control = ["--model-control-mode=none"]
        if self._is_swappable:
            control = ["--model-control-mode=explicit", "--load-model=*"]
        return [
            str(wheel / "bin" / "tritonserver"),
            f"--model-repository={repository}",
            f"--backend-directory={backends}",
            f"--backend-config=python,shm-region-prefix-name={self._region_prefix}",
            *control,
            "--disable-auto-complete-config",
            "--strict-readiness=true",
            # Its callers stop before it does.
            "--exit-timeout-secs=2",
            "--allow-http=false",
            f"--grpc-address={_HOST}",
            f"--grpc-port={self._grpc_port}",
            f"--metrics-address={_HOST}",
            f"--metrics-port={self._metrics_port}",
            "--allow-gpu-metrics=false",
            "--allow-cpu-metrics=false",
            "--log-verbose=0",
        ]

    def _wait_until_ready(
        self,
        process: subprocess.Popen[bytes],
        model_names: Sequence[str],
        should_stop: Callable[[], bool],
    ) -> None:
        deadline_time = time.monotonic() + _START_SECONDS
        # Loopback needs no proxy.
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"{_HOST}:{self._grpc_port}", options=options) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            while not all(_is_ready(stub, name) for name in model_names):
                if (status := process.poll()) is not None:
                    error = _Crashed if -status in _CRASHES else TritonUnavailable
                    raise error(f"Triton ended {_by(status)} while starting\n{self._log_tail()}")
                if should_stop():
                    raise TritonUnavailable("stopped while Triton started")
                if time.monotonic() > deadline_time:
                    raise TritonUnavailable(
                        f"Triton's models were not ready in {_START_SECONDS:.0f} s\n"
                        f"{self._log_tail()}"
                    )
                time.sleep(0.1)

    def _log_tail(self) -> str:
        """Returns the server's error lines, or else its last lines."""
        with self._log_path.open(errors="replace") as log:
            log.seek(self._log_start)
            lines = log.read().splitlines()
        errors = [line for line in lines if not _CHATTER.match(line)]
        return "\n".join([f"from {self._log_path}:", *(errors or lines)[-15:]])


def _by(status: int) -> str:
    """Returns the words for how a process ended, such as "by SIGSEGV"."""
    return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def _is_ready(stub: service_pb2_grpc.GRPCInferenceServiceStub, name: str) -> bool:
    try:
        # The model's readiness: the server's can be that of an older one that is shutting down.
        return bool(stub.ModelReady(service_pb2.ModelReadyRequest(name=name), timeout=1.0).ready)
    except grpc.RpcError:
        return False


def _model_names(model_repository: Path) -> list[str]:
    names = [path.parent.name for path in _config_paths(model_repository)]
    if not names:
        raise TritonUnavailable(f"{model_repository} has no models; run tandem models add")
    return names


def _config_paths(model_repository: Path) -> list[Path]:
    """Returns the config.pbtxt of every model to load."""
    return sorted(set(model_repository.glob("*/config.pbtxt")) - idle_configs(model_repository))


def _check_serving_version(model_repository: Path) -> None:
    """Raises TritonUnavailable if a later version serves and its file has changed since its test.

    This is checked before Triton loads the file, because loading runs the code in it.
    """
    try:
        if serving(model_repository).version != FIRST_VERSION:
            verify_serving_version(model_repository, read_manifest(model_repository))
    except (OSError, ValueError) as error:
        raise TritonUnavailable(str(error)) from error


def _check_port_is_free(port: int) -> None:
    with socket.socket() as listener:
        # As servers do, so that closing connections of an earlier server do not matter.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            raise TritonUnavailable(
                f"{_HOST}:{port} is not available for Triton: {error}"
            ) from error


def _wait_until_gone(group: int) -> None:
    """Returns, or raises ProcessLookupError, once no process of the group is left."""
    # Bounded, because the process that inherits a server's stubs may reap them late.
    deadline_time = time.monotonic() + _BURIAL_SECONDS
    while time.monotonic() < deadline_time:
        os.killpg(group, 0)
        time.sleep(0.01)


def _running_count(group: int) -> int:
    """Returns how many processes of a group run, zombies excluded."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The part after the name, which may contain anything.
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has just ended
            continue
        count += int(process_group) == group and state not in "ZX"
    return count


def _make_repository(model_repository: Path, work_folder: Path, *, is_swappable: bool) -> Path:
    """Lays out the repository for our backend: the same files, with compute times in the configs.

    Of the joint encoder's versions it has only the serving one. A swappable server keeps every
    version that it finds; Triton's default is only the latest.
    """
    repository = work_folder / "models"
    others = {str(number) for number in version_numbers(model_repository)}
    others.discard(str(serving(model_repository).version))
    for config_path in _config_paths(model_repository):
        folder = repository / config_path.parent.name
        folder.mkdir(parents=True)
        for path in config_path.parent.iterdir():
            is_other_version = folder.name == JOINT_ENCODER and path.name in others
            if path != config_path and not is_other_version:
                (folder / path.name).symlink_to(path.resolve())
        config_text = timed(config_path.read_text(encoding="utf-8"))
        if is_swappable:
            config_text += "version_policy: { all { } }\n"
        (folder / config_path.name).write_text(config_text, encoding="utf-8")
    return repository
