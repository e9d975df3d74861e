"""`tandem up --monitoring` as a user runs it, and the processes that it says it has started."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

_START_SECONDS = 120.0
_STOP_SECONDS = 40.0
_ROW = re.compile(r"^(\S+) +(127\.0\.0\.1:\d+) +(http://\S+/metrics) +(\d+) *$", re.M)
_PROMETHEUS = re.compile(r"^Prometheus: (\S+),", re.M)


class RunningStack:
    """Everything, until left. Processes may be stopped and let go again by name."""

    def __init__(
        self, folder: Path, options: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """Starts the command; `folder` takes its data and its output."""
        folder.mkdir(parents=True, exist_ok=True)
        self._output_path = folder / "up.txt"
        self.data_folder = folder / "data"
        command = [sys.executable, "-m", "tandem.cli", "up", "--monitoring", "--free-ports"]
        with self._output_path.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--data", str(self.data_folder), *options],
                # Wide enough that no row of the table is broken.
                env=os.environ | {"COLUMNS": "200"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.prometheus_url = ""
        self.addresses: dict[str, str] = {}
        self.pids: dict[str, int] = {}

    def wait_until_up(self) -> None:
        """Returns once it has said where everything is; raises RuntimeError with its words."""
        end_time = time.monotonic() + _START_SECONDS
        while not (found := _PROMETHEUS.search(self.output())):
            if self._process.poll() is not None or time.monotonic() > end_time:
                raise RuntimeError(f"tandem up does not come up\n{self.output()}")
            time.sleep(0.1)
        self.prometheus_url = found[1]
        for name, address, _, pid in _ROW.findall(self.output()):
            self.addresses[name], self.pids[name] = address, int(pid)

    def output(self) -> str:
        """Returns what it has printed."""
        return self._output_path.read_text()

    def is_running(self) -> bool:
        """Returns whether the command still runs."""
        return self._process.poll() is None

    @contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """Holds these processes still (SIGSTOP) while it is entered."""
        try:
            for name in names:
                os.kill(self.pids[name], signal.SIGSTOP)
            yield
        finally:
            for name in names:
                os.kill(self.pids[name], signal.SIGCONT)

    def hold_on_and_off(self, name: str, seconds: float, *, off: float, on: float) -> None:
        """Gives a process `on` seconds after every `off` seconds without any."""
        end_time = time.monotonic() + seconds
        while time.monotonic() < end_time:
            with self.stopped(name):
                time.sleep(off)
            time.sleep(on)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
