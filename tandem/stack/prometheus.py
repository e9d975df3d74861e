"""Runs a Prometheus next to the local stack, with the deployed rules."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from tandem.installation import deployed_folder
from tandem.platform.child_processes.child_environment import child_environment
from tandem.platform.child_processes.keeper import ProcessFailed, ProcessKeeper
from tandem.platform.files.whole_file import write_text_whole
from tandem.stack.ports import HOST, answers_ok

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_SCRAPE_SECONDS = 5.0
# Scrapes within the shortest window of the rules, which is five minutes.
_WINDOW_SECONDS = 300.0
_SCRAPES_A_WINDOW = 7.5
MAX_SPEED = 60.0
JOB = "tandem"
"""What alerts call the job of every target."""

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
# A range's window, and the lines with an alert's wait and a group's interval.
_DURATION = re.compile(r"(\[|\bfor: |\binterval: )(\d+)([smhd])\b")


class PrometheusUnavailable(ProcessFailed):
    """Prometheus cannot start here, or did not become ready."""


class LocalPrometheus:
    """Runs one server on loopback, within a with statement."""

    _process: subprocess.Popen[bytes]

    def __init__(
        self,
        folder: Path,
        port: int,
        targets: Mapping[str, str],
        *,
        speed: float = 1.0,
        keeper: ProcessKeeper | None = None,
    ) -> None:
        """Scrapes `targets`, host:port by instance name.

        Data, configuration and log go into `folder`, which keeps those of earlier runs. Files in
        `target_folder` add targets while it runs. `speed`, 1 to MAX_SPEED, divides every window and
        wait of the rules, so that slow alerts fire within minutes. `keeper` ends the server,
        however this process ends.
        """
        if not 1 <= speed <= MAX_SPEED:
            raise ValueError(f"rules can be run 1 to {MAX_SPEED:.0f} times as fast, not {speed}")
        self._folder = folder
        self._port = port
        self._targets = targets
        self._speed = speed
        self._keeper = keeper
        self.scrape_seconds = min(_SCRAPE_SECONDS, _WINDOW_SECONDS / speed / _SCRAPES_A_WINDOW)
        self.target_folder = folder / "targets"

    @staticmethod
    def check_installed() -> None:
        """Raises PrometheusUnavailable, which names what is missing."""
        if shutil.which("prometheus") is None:
            raise PrometheusUnavailable(
                "there is no prometheus on PATH: install it (Debian and Ubuntu: apt install "
                "prometheus; others: https://prometheus.io/download), or leave --monitoring out"
            )
        if not any(_rules_folder().glob("*.yml")):
            raise PrometheusUnavailable(f"{_rules_folder()} has no rules: reinstall Tandem")

    @property
    def url(self) -> str:
        """Returns the URL of its pages and API."""
        return f"http://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Returns its process id."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Returns whether it has ended by itself."""
        return self._process.poll() is not None

    def __enter__(self) -> Self:
        """Waits until it is ready; raises PrometheusUnavailable with the end of its log."""
        self.check_installed()
        self._write_configuration()
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                env=child_environment() | (self._keeper.mark() if self._keeper else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Its own process group, so that only we receive Ctrl-C.
                start_new_session=True,
            )
        deadline_time = time.monotonic() + _START_SECONDS
        try:
            while not answers_ok(self._port, "/-/ready"):
                if self.has_ended() or time.monotonic() > deadline_time:
                    raise PrometheusUnavailable(f"Prometheus did not start\n{self._log_tail()}")
                time.sleep(0.1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """Stops it, and waits for its end."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _command(self) -> list[str]:
        return [
            "prometheus",
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={HOST}:{self._port}",
            # Prometheus stores exemplars only with this feature.
            "--enable-feature=exemplar-storage",
        ]

    def _write_configuration(self) -> None:
        rules = self._folder / "rules"
        for folder in (rules, self.target_folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for path in _rules_folder().glob("*.yml"):
            (rules / path.name).write_text(sped_up(path.read_text(), self._speed))
        write_targets(self.target_folder / "tandem.json", self._targets)
        interval = f"{round(1e3 * self.scrape_seconds)}ms"
        configuration = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [f"{rules}/*.yml"],
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "scrape_timeout": interval,
                    "file_sd_configs": [{"files": [f"{self.target_folder}/*.json"]}],
                }
            ],
        }
        # JSON is YAML.
        (self._folder / "prometheus.yml").write_text(json.dumps(configuration, indent=2))

    def _log_tail(self) -> str:
        path = self._folder / "prometheus.log"
        return "\n".join([f"the end of {path}:", *path.read_text().splitlines()[-8:]])


def write_targets(path: Path, targets: Mapping[str, str]) -> None:
    """Writes a file of targets, host:port by instance, which a running Prometheus reloads."""
    groups = [
        {"targets": [address], "labels": {"instance": instance}}
        for instance, address in targets.items()
    ]
    write_text_whole(path, json.dumps(groups, indent=2))


def sped_up(rules: str, speed: float) -> str:
    """Returns the text of a file of rules with every window, wait and interval divided."""

    def shorter(found: re.Match[str]) -> str:
        milliseconds = 1e3 * int(found[2]) * _SECONDS[found[3]] / speed
        return f"{found[1]}{round(milliseconds)}ms"

    return rules if speed == 1 else _DURATION.sub(shorter, rules)


def scraped(endpoints: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns host:port by name, of names and URLs of metrics."""
    return {name: url.removeprefix("http://").partition("/")[0] for name, url in endpoints}


def _rules_folder() -> Path:
    return deployed_folder("prometheus/rules")
