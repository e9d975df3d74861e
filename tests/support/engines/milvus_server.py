"""Starts a real Milvus server from the wheel of `make test-engines`.

It listens on all interfaces: no setting of Milvus 2.3 has it listen on loopback alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from tests.support.once_a_session import at_session_end

# Of the unpacked wheel, 380 MB: shared by all servers of a checkout.
_BINARIES = Path(sys.prefix) / "engines" / "milvus-server"
_START_SECONDS = 120.0


class MilvusServer:
    """A server of a folder, in a process group of its own; `start` again after `kill`."""

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        """Takes the folder of its data, and Milvus' settings by their dotted names."""
        self.folder = folder
        self.settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    @property
    def port(self) -> int:
        """Returns the port that clients call."""
        return self._ports["proxy_port"]

    @property
    def address(self) -> str:
        """Returns host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Returns the server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it and returns when it says that it is healthy."""
        if not self._ports:
            self._set_up()
        environment = os.environ | {
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(self._ports["health"]),
            "MILVUS_RUN_DIR": str(self.folder / "run"),
            "LD_LIBRARY_PATH": str(_BINARIES),
        }
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_BINARIES / "milvus", "run", "standalone"],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._await_health()

    def signal(self, number: int) -> None:
        """Sends it a signal, such as SIGSTOP."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self._process.wait(30.0)
            self._process = None

    def stop_for_good(self) -> None:
        """Ends it and deletes its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _set_up(self) -> None:
        """Unpacks the wheel, and writes the settings with free ports."""
        import milvus  # here, because only `make test-engines` has it

        self.folder.mkdir(parents=True, exist_ok=True)
        _BINARIES.mkdir(parents=True, exist_ok=True)
        (self.folder / "bin").symlink_to(_BINARIES)
        milvus._initialize_data_files(str(self.folder))
        config = milvus.MilvusServerConfig(data_dir=str(self.folder))
        names = [name for name in config.configurable_items if name.endswith("_port")]
        self._ports = _free_ports([*names, "health", "peer"])
        config.configs |= {name: self._ports[name] for name in names}
        for name, value in self.settings.items():
            config.set(name, value)
        config.resolve()
        # Milvus' own etcd listens on port 2380 too, unless it has a file of its own.
        peer = f"http://127.0.0.1:{self._ports['peer']}"
        client = f"http://127.0.0.1:{self._ports['etcd_port']}"
        (self.folder / "etcd.yaml").write_text(
            f"name: default\ndata-dir: {self.folder}/data/etcd.data\n"
            f"listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\n"
            f"initial-cluster: default={peer}\n"
            f"listen-client-urls: {client}\nadvertise-client-urls: {client}\n"
        )
        written = self.folder / "configs" / "milvus.yaml"
        own = f"  config:\n    path: {self.folder}/etcd.yaml\n"
        text = written.read_text()
        written.write_text(text.replace("  use:\n    embed", f"{own}  use:\n    embed", 1))

    def _await_health(self) -> None:
        end_time = time.monotonic() + _START_SECONDS
        while time.monotonic() < end_time:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"Milvus ended; see {self.folder / 'server.log'}")
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self._ports['health']}/healthz", timeout=5
                ) as answer:
                    if b"OK" in answer.read():
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise TimeoutError("Milvus did not start")


@cache
def shared_milvus() -> MilvusServer:
    """Returns a server for the tests of this process."""
    server = MilvusServer(Path(tempfile.mkdtemp(prefix="milvus-")))
    at_session_end(server.stop_for_good)
    server.start()
    return server


def _free_ports(names: Iterable[str]) -> dict[str, int]:
    # Not as tandem.stack has them, which holds them: the wheel tries them before the server does.
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.socket()) for name in names}
        for each in sockets.values():
            each.bind(("127.0.0.1", 0))
        return {name: int(each.getsockname()[1]) for name, each in sockets.items()}
