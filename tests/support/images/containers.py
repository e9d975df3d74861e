"""Runs containers of built images as a pod or Compose would: by runc, without an engine.

Each container has the image's files as a read-only root, no capabilities, the user, the mounts, the
memory and the processes that it is given, and nothing else. Each address is a network namespace of
its own on a bridge that leads nowhere else. What is missing of a cluster: a seccomp profile, and
network policies. It needs root, buildah, runc and iproute2.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem import __version__

TOOLS = ("buildah", "runc", "ip")
IMAGES = tuple(f"tandem/{name}:{__version__}" for name in ("service", "models", "triton-cpu"))
_SUBNET = ipaddress.IPv4Network("10.231.0.0/16")
# As engines give, where this machine may.
_FILE_COUNT = min(1 << 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
_CPU_PERIOD_MICROSECONDS = 100_000
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine in a container; without a source, memory."""

    target: str
    source: Path | None = None
    is_writable: bool = True
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """One container to run."""

    name: str
    image: str
    host: str
    """The name of its address, which others of the same name share."""
    entrypoint: Sequence[str] | None = None
    command: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    user: tuple[int, int] | None = None
    """By default the image's."""
    groups: Sequence[int] = ()
    mounts: Sequence[Mount] = ()
    memory_bytes: int | None = None
    cpu_count: float | None = None
    process_count: int | None = None
    processes_of: str | None = None
    """The container whose process namespace it shares."""

    @property
    def start_count(self) -> int:
        """How often it is started where it ends by itself: Triton may crash on a busy machine."""
        return 3 if "triton" in self.image else 1


class MissingPart(Exception):
    """What this machine lacks to build or run images."""


def check_parts() -> None:
    """Raises MissingPart unless containers can run here and every image was built."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise MissingPart(f"no {', '.join(missing)}")
    if os.geteuid() != 0:
        raise MissingPart("root alone may run containers here")
    for image in IMAGES:
        if _buildah("inspect", "--type", "image", image, check=False).returncode != 0:
            raise MissingPart(f"no image {image}: make images")


class Containers:
    """Containers that share a bridge. Use it in a with statement, which ends them all."""

    def __init__(self, folder: Path, hosts: Mapping[str, Sequence[str]]) -> None:
        """`hosts` has for each address the names by which containers find it."""
        self._folder = folder
        self._names = hosts
        self._bridge = f"td{os.getpid() % 10**7}"
        addresses = _SUBNET.hosts()
        self._own_address = next(addresses)
        self.addresses = {host: str(next(addresses)) for host in hosts}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._plans: dict[str, ContainerPlan] = {}
        self._start_counts: dict[str, int] = {}
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Containers:
        """Makes the networks."""
        try:
            self._make_networks()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        """Kills every container and removes what was made for them."""
        for name, process in reversed(self._processes.items()):
            _run(*self._runc("delete", "--force", self._identity(name)), check=False)
            process.wait()
        self._ends.close()
        # runc removes each container's own control groups, and not the folder around them.
        for folder in [*_CONTROL_GROUPS.glob(f"*/{self._bridge}"), _CONTROL_GROUPS / self._bridge]:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def start(self, plan: ContainerPlan) -> None:
        """Starts a container and returns at once; its output goes to its log."""
        bundle = self._folder / "bundles" / plan.name
        bundle.mkdir(parents=True, exist_ok=True)
        self._plans[plan.name] = plan
        self._start_counts[plan.name] = self._start_counts.get(plan.name, 0) + 1
        config = self._config(plan)
        (bundle / "config.json").write_text(json.dumps(config))
        with self.log_path(plan.name).open("wb") as log:
            self._processes[plan.name] = subprocess.Popen(
                self._runc("run", "--bundle", str(bundle), self._identity(plan.name)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, plan: ContainerPlan) -> None:
        """Runs a container to its end; raises AssertionError with its log if it fails."""
        self.start(plan)
        status = self._processes.pop(plan.name).wait(120)
        assert status == 0, f"{plan.name} ended with {status}: {self.log(plan.name)}"

    def execute(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in a container, as its user, in its environment."""
        return _run(*self._runc("exec", self._identity(name), *command), check=False)

    def stop(self, name: str, timeout_seconds: float) -> int:
        """Sends SIGTERM and returns the exit status."""
        _run(*self._runc("kill", self._identity(name), "TERM"))
        return self._processes[name].wait(timeout_seconds)

    def wait_until(self, is_true: Callable[[], bool], name: str, timeout_seconds: float) -> None:
        """Waits for a state of a container; raises AssertionError with a log if one ends first."""
        deadline = time.monotonic() + timeout_seconds
        while not is_true():
            for each, process in list(self._processes.items()):
                if process.poll() is not None:
                    plan = self._plans[each]
                    is_last = self._start_counts[each] == plan.start_count
                    assert not is_last, f"{each} ended: {self.log(each)}"
                    self.start(plan)
            assert time.monotonic() < deadline, f"{name} is not ready: {self.log(name)}"
            time.sleep(0.5)

    def wait_until_running(self, name: str) -> None:
        """Waits until commands can run in a container."""
        self.wait_until(lambda: self.execute(name, "true").returncode == 0, name, 30.0)

    def log_path(self, name: str) -> Path:
        """Returns where its output is."""
        return self._folder / f"{name}.log"

    def log(self, name: str) -> str:
        """Returns the end of its output."""
        return self.log_path(name).read_text(errors="replace")[-4000:]

    def image_folder(self, image: str) -> Path:
        """Returns where the files of an image are."""
        return _mounted(image, self._ends)

    def _config(self, plan: ContainerPlan) -> dict[str, Any]:
        root, image = self.image_folder(plan.image), _image_config(plan.image)
        config: dict[str, Any] = json.loads(self._specification().read_text())
        given = dict(entry.split("=", 1) for entry in image.get("Env", []))
        uid, gid = plan.user or map(int, image["User"].split(":"))
        entrypoint = image.get("Entrypoint") if plan.entrypoint is None else plan.entrypoint
        command = plan.command
        if command is None:  # a new entrypoint takes the image's command away too
            command = image.get("Cmd") if plan.entrypoint is None else []
        config["process"] |= {
            "terminal": False,
            "user": {"uid": uid, "gid": gid, "additionalGids": list(plan.groups)},
            "args": [*(entrypoint or []), *(command or [])],
            "env": [f"{key}={value}" for key, value in (given | dict(plan.environment)).items()],
            "cwd": image.get("WorkingDir") or "/",
            "capabilities": {},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": _FILE_COUNT, "soft": _FILE_COUNT}],
        }
        config["root"] = {"path": str(root), "readonly": True}
        config["hostname"] = plan.host[:60]
        targets = {mount.target for mount in plan.mounts}
        kept = [each for each in config["mounts"] if each["destination"] not in targets]
        config["mounts"] = [*kept, *self._names_mounts(), *map(_oci_mount, plan.mounts)]
        self._isolate(plan, config["linux"])
        return config

    def _isolate(self, plan: ContainerPlan, linux: dict[str, Any]) -> None:
        """Gives it its address, its share of the machine and maybe another's processes."""
        namespaces = {each["type"]: each for each in linux["namespaces"]}
        namespaces["network"]["path"] = f"/run/netns/{self._network(plan.host)}"
        if plan.processes_of:
            state = json.loads(_run(*self._runc("state", self._identity(plan.processes_of))).stdout)
            namespaces["pid"]["path"] = f"/proc/{state['pid']}/ns/pid"
        linux["cgroupsPath"] = f"/{self._bridge}/{plan.name}"
        limits = linux["resources"]
        if plan.memory_bytes:
            limits["memory"] = {"limit": plan.memory_bytes}
        if plan.process_count:
            limits["pids"] = {"limit": plan.process_count}
        if plan.cpu_count:
            quota = int(plan.cpu_count * _CPU_PERIOD_MICROSECONDS)
            limits["cpu"] = {"period": _CPU_PERIOD_MICROSECONDS, "quota": quota}

    def _specification(self) -> Path:
        folder = self._folder / "specification"
        if not folder.exists():
            folder.mkdir(parents=True)
            _run("runc", "spec", "--bundle", str(folder))
        return folder / "config.json"

    def _names_mounts(self) -> Iterator[dict[str, Any]]:
        lines = ["127.0.0.1 localhost"]
        for host, address in self.addresses.items():
            lines += [f"{address} {name}" for name in self._names[host]]
        for name, text in (("hosts", "\n".join(lines) + "\n"), ("resolv.conf", "")):
            path = self._folder / name
            path.write_text(text)
            yield _oci_mount(Mount(f"/etc/{name}", path, is_writable=False))

    def _make_networks(self) -> None:
        self._ends.callback(_run, "ip", "link", "delete", self._bridge, check=False)
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        own = f"{self._own_address}/{_SUBNET.prefixlen}"
        _run("ip", "address", "add", own, "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for number, (host, address) in enumerate(self.addresses.items()):
            network, outside = self._network(host), f"{self._bridge}v{number}"
            self._ends.callback(_run, "ip", "netns", "delete", network, check=False)
            _run("ip", "netns", "add", network)
            peer = ("peer", "name", "eth0", "netns", network)
            _run("ip", "link", "add", outside, "type", "veth", *peer)
            _run("ip", "link", "set", outside, "master", self._bridge, "up")
            inside = ("ip", "-netns", network)
            _run(*inside, "address", "add", f"{address}/{_SUBNET.prefixlen}", "dev", "eth0")
            _run(*inside, "link", "set", "eth0", "up")
            _run(*inside, "link", "set", "lo", "up")

    def _network(self, host: str) -> str:
        return f"{self._bridge}-{host}"

    def _identity(self, name: str) -> str:
        return f"{self._bridge}-{name}"

    def _runc(self, *arguments: str) -> tuple[str, ...]:
        return ("runc", "--root", str(self._folder / "runc"), *arguments)


def _oci_mount(mount: Mount) -> dict[str, Any]:
    if mount.source is None:
        size = [] if mount.size_bytes is None else [f"size={mount.size_bytes}"]
        options = ["nosuid", "nodev", "mode=1777", *size]
        return _mount_entry(mount.target, "tmpfs", "tmpfs", options)
    options = ["rbind", "nosuid", "nodev", "rw" if mount.is_writable else "ro"]
    return _mount_entry(mount.target, "bind", str(mount.source), options)


def _mount_entry(target: str, kind: str, source: str, options: list[str]) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": source, "options": options}


def _mounted(image: str, ends: contextlib.ExitStack) -> Path:
    name = f"run-{os.getpid()}-{image.replace('/', '-').replace(':', '-')}"
    if _buildah("inspect", name, check=False).returncode != 0:
        _buildah("from", "--pull=never", "--name", name, image)
        ends.callback(_buildah, "rm", name, check=False)
    return Path(_buildah("mount", name).stdout.strip())


@functools.cache
def _image_config(image: str) -> dict[str, Any]:
    described = json.loads(_buildah("inspect", "--type", "image", image).stdout)
    return dict(described["OCIv1"]["config"])


def _buildah(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run("buildah", *arguments, check=check)


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done
