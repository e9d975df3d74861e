"""Runs our services of deploy/compose.yaml as Compose does, on one network."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.support.deploy.rendered import ROOT
from tests.support.images.containers import ContainerPlan, Containers, Mount

_READY_SECONDS = 180.0
_UNITS = {"m": 2**20, "g": 2**30, "gb": 2**30}


def composed_services() -> dict[str, dict[str, Any]]:
    """Returns the services whose images are ours, in the order in which they start."""
    text = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return {name: each for name, each in services.items() if each["image"].startswith("tandem/")}


class ComposeRunner:
    """Starts the services of the Compose file."""

    def __init__(self, containers: Containers, folder: Path, token_folder: Path) -> None:
        """Named volumes go to `folder`."""
        self._containers = containers
        self._folder = folder
        self._token_folder = token_folder
        self._services = composed_services()

    def start(self) -> None:
        """Starts every service, after those that it names, and waits until all are healthy."""
        for name, service in self._services.items():
            plan = self._plan(name, service)
            if service.get("restart") == "no":
                self._containers.run(plan)
            else:
                self._containers.start(plan)
                self._containers.wait_until_running(name)
        for name, service in self._services.items():
            if "healthcheck" in service:
                _, *command = service["healthcheck"]["test"]
                is_healthy = partial(self._is_healthy, name, command)
                self._containers.wait_until(is_healthy, name, _READY_SECONDS)

    def stop(self) -> dict[str, int]:
        """Ends every service within its time and returns the exit status of each."""
        return {
            name: self._containers.stop(name, float(service["stop_grace_period"].rstrip("s")))
            for name, service in reversed(self._services.items())
            if service.get("restart") != "no"
        }

    def _is_healthy(self, name: str, command: Sequence[str]) -> bool:
        return self._containers.execute(name, *command).returncode == 0

    def _plan(self, name: str, service: Mapping[str, Any]) -> ContainerPlan:
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        processes_of = service.get("pid", "").removeprefix("service:") or None
        return ContainerPlan(
            name=name,
            image=service["image"],
            host=name,
            entrypoint=service.get("entrypoint"),
            command=service.get("command"),
            environment=service.get("environment", {}),
            mounts=[*self._mounts(service)],
            memory_bytes=_size(service["mem_limit"]),
            cpu_count=service["cpus"],
            process_count=service["pids_limit"],
            processes_of=processes_of,
        )

    def _mounts(self, service: Mapping[str, Any]) -> Iterator[Mount]:
        yield from (Mount(target) for target in service.get("tmpfs", []))
        if "shm_size" in service:
            yield Mount("/dev/shm", size_bytes=_size(service["shm_size"]))
        for volume in service.get("volumes", []):
            if isinstance(volume, dict):
                yield Mount(volume["target"], self._token_folder, is_writable=False)
            else:
                name, target, *options = volume.split(":")
                source = self._volume(name, self._containers.image_folder(service["image"]), target)
                yield Mount(target, source, is_writable=options != ["ro"])

    def _volume(self, name: str, image: Path, target: str) -> Path:
        folder = self._folder / name
        if not folder.exists():
            folder.mkdir(parents=True)
            # A new volume gets the owner of the folder that it is mounted on first.
            owner = (image / target.lstrip("/")).stat()
            os.chown(folder, owner.st_uid, owner.st_gid)
        return folder


def _size(text: str) -> int:
    digits = text.rstrip("bgm")
    return int(digits) * _UNITS[text.removeprefix(digits)]
