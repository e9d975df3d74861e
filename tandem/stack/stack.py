"""Runs Triton and every service on one machine, each as a process on loopback."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem.platform.child_processes.child_environment import python_command, python_environment
from tandem.platform.child_processes.keeper import ProcessFailed, ProcessKeeper
from tandem.platform.child_processes.private_log import bound_log, private_log
from tandem.stack.ports import HOST, Ports, answers_ok
from tandem.triton.server import TritonServer, TritonUnavailable, core_count

_STOP_SECONDS = 10.0
_PRIVATE_FOLDER, _PRIVATE_UMASK = 0o700, 0o077
_SHARD_MAP_VERSION = 1
# With replicas, one stops while another is called, so it needs the notice of production.
_REPLICATED_NOTICE_SECONDS = 1.0
# Searches in flight: an admitted search must meet its deadline, and this machine does all the work.
# At five times the capacity of two cores, 32 gave a fifth fewer answers than 24 (docs/overload.md).
_SEARCHES_A_CORE, _LEAST_SEARCHES = 12, 16
_PREFIXES = ("ENCODER", "INDEX", "RERANK", "ORCHESTRATOR", "GATEWAY")
_SHARED_PREFIXES = ("TLS_", "ACCESS_", "DOOR_")
_TLS_PROXY = "tls-proxy"
_IN_PROCESS = "in-process"
# Their callers are services, which have no tokens.
_TOKENLESS = ("encoder", "rerank")
_CACHE_SETTINGS = {"encoder": "QUERY_CACHE_BYTES", "rerank": "SCORE_CACHE_BYTES"}


__all__ = ["Endpoint", "LocalStack", "Ports", "StackFailed"]


class StackFailed(ProcessFailed):
    """A process of the stack did not become ready, or died."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One process with its addresses."""

    name: str
    address: str
    metrics_url: str
    pid: int


class LocalStack:
    """Starts, watches and stops the processes. Use it in a with statement."""

    def __init__(  # noqa: PLR0913
        self,
        data_folder: Path,
        model_repository: Path,
        ports: Ports,
        *,
        caches: bool = True,
        swaps: bool = False,
        gateway: bool = False,
        merged: bool = False,
        settings: Mapping[str, str] | None = None,
        certificates: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Prepares a stack with stores and logs in `data_folder`; starts nothing yet.

        Without `caches` every search is computed, which measurements need. With `swaps` Triton
        accepts other model versions while it serves. With `gateway` there is HTTP as well.
        With `merged` the orchestrator's process has all other services too.
        `settings` are variables of services, in addition to those of the stack. `certificates` are
        the TLS_… variables of each kind of process; with "triton" among them, a TLS proxy runs in
        front of Triton.
        """
        self._certificates = certificates or {}
        self._settings = settings or {}
        self._caches = caches
        self._swaps = swaps
        self._has_gateway = gateway
        self._is_merged = merged
        self.ports = ports
        self._data_folder = data_folder
        self.model_repository = model_repository
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[str, int] = {}
        self.triton: TritonServer | None = None
        """The Triton server while it should run."""
        self._should_stop: Callable[[], bool] = lambda: False
        self.keeper = ProcessKeeper()
        """The keeper, which ends all processes of the stack however this process ends."""

    @property
    def address(self) -> str:
        """Returns host:port of the orchestrator, or one address for several."""
        return self._addresses("orchestrator")

    @property
    def http_url(self) -> str | None:
        """Returns the URL of the gateway; None without one."""
        scheme = "https" if "gateway" in self._certificates else "http"
        return f"{scheme}://localhost:{self.ports.gateway}/" if self._has_gateway else None

    def start(
        self,
        timeout_seconds: float = 90.0,
        should_stop: Callable[[], bool] = lambda: False,
        show: Callable[[str], None] = lambda stage: None,  # noqa: ARG005 (shows nothing)
    ) -> None:
        """Starts everything, shows each stage, and returns when every service is serving.

        The services have `timeout_seconds` for it from when Triton serves. If Triton crashes
        meanwhile, it is started a second time. Raises StackFailed with the end of the failed
        process's log, or if `should_stop` is true.
        """
        self._should_stop = should_stop
        self._data_folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        (self._data_folder / "logs").mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        try:
            # Before Triton, which takes longest, because a service that cannot work ends at once.
            if "triton" in self._certificates:
                self.start_service(_TLS_PROXY)
            for name in self.service_names():
                self.start_service(name)
            show(f"{len(self._processes)} services are started, and Triton loads the models")
            self._start_first_triton()
            show("Triton serves the models; the services become ready")
            self._wait_until_all_serve(timeout_seconds)
            if ending := self._triton_ending():
                show(f"{ending.splitlines()[0]}; it is started again")
                self.stop_triton()
                self._start_first_triton()
                self._wait_until_all_serve(timeout_seconds)
                if ending := self._triton_ending():
                    raise StackFailed(
                        f"{ending}\nIt ended twice before all services were ready, as it can on a "
                        "busy machine: start Tandem again when less runs here"
                    )
        except BaseException:
            self.stop()
            raise

    def service_names(self) -> list[str]:
        """Returns the services in the order of a query's path, entry last."""
        shards = range(len(self.ports.index))
        merged = self._merged_names()
        return [
            *(name for name in self._processes_of("encoder") if name not in merged),
            *(name for name in map("index-{}".format, shards) if name not in merged),
            *(name for name in map("rerank-{}".format, shards) if name not in merged),
            *self._processes_of("orchestrator"),
            *(["gateway"] if self._has_gateway and not self._is_merged else []),
        ]

    def start_triton(self) -> None:
        """Starts Triton; returns when its models are ready."""
        self.triton = TritonServer(
            model_repository=self.model_repository,
            grpc_port=self.ports.triton,
            metrics_port=self.ports.metrics[self.ports.triton],
            log_path=self._log_path("triton"),
            is_swappable=self._swaps,
            keeper=self.keeper,
        )
        self.triton.start(self._should_stop)

    def has_triton_lost_process(self) -> bool:
        """Returns whether one of Triton's own processes has ended."""
        return self.triton is not None and self.triton.has_lost_process()

    def stop_triton(self) -> None:
        """Stops only Triton."""
        if self.triton:
            self.triton.stop()
            self.triton = None

    def start_service(self, name: str) -> None:
        """Starts one service's process."""
        arguments, environment = self.command(name)
        with private_log(self._log_path(name)) as log:
            self._log_starts[name] = log.tell()  # Earlier output is from earlier runs.
            self._processes[name] = subprocess.Popen(
                python_command(arguments),
                env=_clean_environment() | environment | self.keeper.mark(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Stores, logs and snapshots hold contents, which other users must not read.
                umask=_PRIVATE_UMASK,
                # Its own process group, so that only we receive Ctrl-C and stop all in order.
                start_new_session=True,
            )

    def wait_until_serving(self, name: str, deadline_time: float) -> None:
        """Waits until the service is ready; `deadline_time` is monotonic."""
        while not self._is_serving(name):
            if self._processes[name].poll() is not None:
                raise StackFailed(f"{name} died\n{self._log_tail(name)}")
            if self._should_stop():
                raise StackFailed("stopped while starting")
            if time.monotonic() > deadline_time:
                raise StackFailed(f"{name} is not serving yet\n{self._log_tail(name)}")
            time.sleep(0.1)

    def kill_service(self, name: str) -> None:
        """Kills one service, as a crash would."""
        self._processes[name].kill()
        self._processes[name].wait()

    def stop_service(self, name: str) -> float:
        """Stops one service gracefully; returns the seconds that this took.

        Raises StackFailed if it does not end in time, or not with 0.
        """
        process = self._processes[name]
        start_time = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise StackFailed(f"{name} does not stop\n{self._log_tail(name)}") from error
        if status:
            raise StackFailed(f"{name} ended with {status}\n{self._log_tail(name)}")
        return time.monotonic() - start_time

    def dead_service(self) -> str | None:
        """Returns the name and the log's end of a service that has ended by itself, if any."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                return f"{name} ended with {process.returncode}\n{self._log_tail(name)}"
        return None

    def bound_logs(self) -> None:
        """Keeps each log below some size; call it now and then."""
        for name in (*self._processes, "triton"):
            bound_log(self._log_path(name))

    def endpoints(self) -> Iterator[Endpoint]:
        """Yields every running process."""
        for name in reversed(self.service_names()):
            yield self._endpoint(name, self._port(name), self._processes[name].pid)
        if self.triton:
            yield self._endpoint("triton", self.ports.triton, self.triton.pid)

    def stop(self) -> None:
        """Stops everything, the orchestrator first, and returns when no process is left."""
        for name in reversed(list(self._processes)):
            process = self._processes[name]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline_time = time.monotonic() + _STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.1, deadline_time - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self.stop_triton()
        self.keeper.close()

    def __enter__(self) -> "LocalStack":
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def address_of(self, name: str) -> str:
        """Returns host:port of one service."""
        return _address(self._port(name))

    def metrics_url(self, name: str) -> str:
        """Returns the URL of the metrics of a service, or of "triton"."""
        port = self.ports.triton if name == "triton" else self._port(name)
        return f"http://{_address(self.ports.metrics[port])}/metrics"

    def store_path(self, shard: int) -> Path:
        """Returns the folder of a shard's item store."""
        return self._data_folder / f"shard-{shard}"

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Returns the arguments and variables of a service's process.

        A subclass overrides it to run services in another way.
        """
        if name == _TLS_PROXY:
            return self._tls_proxy_command()
        if name == "orchestrator" and self._is_merged:
            return self._merged_command()
        return self._command(name)

    def _command(self, name: str) -> tuple[list[str], dict[str, str]]:
        kind, _, number = name.partition("-")
        port = self._port(name)
        prefix = kind.upper()
        settings = {"ADDRESS": _address(port), "METRICS_PORT": str(self.ports.metrics[port])}
        if kind in ("encoder", "rerank"):
            has_tls = "triton" in self._certificates
            settings["TRITON_ADDRESS"] = _address(
                self.ports.triton_tls if has_tls else self.ports.triton
            )
            settings["TRITON_TLS"] = str(has_tls).lower()
            settings["MODEL_REPOSITORY"] = str(self.model_repository)
        if kind in ("index", "rerank"):
            settings["STORE_PATH"] = str(self.store_path(int(number)))
            settings["SHARD_NUMBER"] = number
            settings["SHARD_COUNT"] = str(len(self.ports.index))
        if kind in ("index", "orchestrator"):
            settings["SHARD_MAP_VERSION"] = str(_SHARD_MAP_VERSION)
        if self.ports.replicas:
            settings["DRAIN_NOTICE_SECONDS"] = str(_REPLICATED_NOTICE_SECONDS)
        if kind in _CACHE_SETTINGS and not self._caches:
            settings[_CACHE_SETTINGS[kind]] = "0"
        if kind == "orchestrator":
            settings["ENCODER_ADDRESS"] = self._addresses("encoder")
            settings["INDEX_ADDRESSES"] = ",".join(map(_address, self.ports.index))
            settings["RERANK_ADDRESSES"] = ",".join(map(_address, self.ports.rerank))
            searches = max(_LEAST_SEARCHES, _SEARCHES_A_CORE * core_count())
            settings["MAX_INFLIGHT_COUNT"] = str(searches)
        if kind == "gateway":
            settings["ORCHESTRATOR_ADDRESS"] = self.address
        variables = {f"{prefix}_{key}": value for key, value in settings.items()}
        others = tuple(f"{each}_" for each in _PREFIXES if each != prefix)
        if kind in _TOKENLESS:
            others += ("ACCESS_",)
        given = {k: value for k, value in self._settings.items() if not k.startswith(others)}
        shown = self._certificates.get(kind, {})
        return ["-m", f"{kind}_svc"], variables | given | dict(shown)

    def _merged_command(self) -> tuple[list[str], dict[str, str]]:
        """Returns the orchestrator's command with the variables of the services that it runs."""
        variables: dict[str, str] = {}
        gateway = ["gateway"] if self._has_gateway else []
        for name in (*self._merged_names(), *gateway, "orchestrator"):
            variables |= self._command(name)[1]
        if gateway:
            variables["GATEWAY_ORCHESTRATOR_ADDRESS"] = _IN_PROCESS
        store_path = str(self._data_folder / "shard-{shard}")
        doors = (f"{_IN_PROCESS}@{_address(port)}" for port in self.ports.index)
        variables |= {
            "ORCHESTRATOR_ENCODER_ADDRESS": _IN_PROCESS,
            "ORCHESTRATOR_INDEX_ADDRESSES": ",".join(doors),
            "ORCHESTRATOR_RERANK_ADDRESSES": ",".join([_IN_PROCESS] * len(self.ports.rerank)),
            "INDEX_STORE_PATH": store_path,
            "RERANK_STORE_PATH": store_path,
        }
        return ["-m", "merged_svc"], variables

    def _merged_names(self) -> list[str]:
        """Returns the services that have no process of their own."""
        if not self._is_merged:
            return []
        numbers = range(len(self.ports.index))
        return ["encoder", *(f"{kind}-{n}" for kind in ("index", "rerank") for n in numbers)]

    def _tls_proxy_command(self) -> tuple[list[str], dict[str, str]]:
        variables = {
            "TLSPROXY_ADDRESS": _address(self.ports.triton_tls),
            "TLSPROXY_TARGET_ADDRESS": _address(self.ports.triton),
        }
        return ["-m", "tandem.chassis.tls_proxy"], variables | dict(self._certificates["triton"])

    def _start_first_triton(self) -> None:
        """Starts Triton; raises StackFailed if a service ends meanwhile."""
        should_stop = self._should_stop
        self._should_stop = lambda: should_stop() or self.dead_service() is not None
        try:
            self.start_triton()
        except TritonUnavailable:
            if dead := self.dead_service():
                raise StackFailed(dead) from None
            raise
        finally:
            self._should_stop = should_stop

    def _wait_until_all_serve(self, timeout_seconds: float) -> None:
        """Waits until every service is ready; returns early if Triton ends by itself."""
        should_stop = self._should_stop
        self._should_stop = lambda: should_stop() or self._triton_ending() is not None
        deadline_time = time.monotonic() + timeout_seconds
        try:
            for name in self.service_names():
                self.wait_until_serving(name, deadline_time)
        except StackFailed:
            if self._triton_ending() is None:
                raise
        finally:
            self._should_stop = should_stop

    def _triton_ending(self) -> str | None:
        """Returns how Triton ended by itself, with its log's end; None while it runs."""
        return self.triton.ending() if self.triton else None

    def _is_serving(self, name: str) -> bool:
        """Reads from the metrics port, which is always plain HTTP."""
        return answers_ok(self.ports.metrics[self._port(name)], "/ready")

    def _processes_of(self, kind: str) -> list[str]:
        return [kind, *(name for name in self.ports.replicas if name.startswith(f"{kind}-"))]

    def _addresses(self, kind: str) -> str:
        addresses = [_address(self._port(name)) for name in self._processes_of(kind)]
        return addresses[0] if len(addresses) == 1 else f"ipv4:{','.join(addresses)}"

    def _port(self, name: str) -> int:
        if name in self.ports.replicas:
            return self.ports.replicas[name]
        kind, _, number = name.partition("-")
        match kind:
            case "index":
                return self.ports.index[int(number)]
            case "rerank":
                return self.ports.rerank[int(number)]
            case "encoder":
                return self.ports.encoder
            case "gateway":
                return self.ports.gateway
            case _:
                return self.ports.orchestrator

    def _endpoint(self, name: str, port: int, pid: int) -> Endpoint:
        return Endpoint(name, _address(port), self.metrics_url(name), pid)

    def _log_path(self, name: str) -> Path:
        return self._data_folder / "logs" / f"{name}.log"

    def _log_tail(self, name: str) -> str:
        path = self._log_path(name)
        lines: list[str] = []
        if path.exists():
            with path.open("rb") as log:
                start = self._log_starts.get(name, 0)
                log.seek(start if start <= path.stat().st_size else 0)
                lines = log.read().decode(errors="replace").splitlines()
        return "\n".join([f"the end of {path}:", *lines[-8:]])


def _address(port: int) -> str:
    return f"{HOST}:{port}"


def _clean_environment() -> dict[str, str]:
    """Returns the environment without variables that have a service's prefix.

    Known settings are passed on by name; a service would refuse the others as unknown.
    """
    dropped = (*(f"{each}_" for each in _PREFIXES), *_SHARED_PREFIXES)
    environment = python_environment()
    return {key: value for key, value in environment.items() if not key.startswith(dropped)}
