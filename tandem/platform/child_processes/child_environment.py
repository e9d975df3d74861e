"""Builds the environment and command of a child process, isolated from the parent's oddities."""
# ruff: noqa: PTH100, PTH109, PTH117, PTH120 (entries of sys.path are texts, compared as such)

import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tandem.platform.child_processes.module_process import MODULE_PATH

_USABLE = {
    # For an old release: protobuf 4 and later fails to import with some values.
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": (),
    # With any other value gRPC aborts the process.
    "GRPC_POLL_STRATEGY": ("all", "epoll1", "poll"),
    # With a context that is not installed here OpenTelemetry prints a traceback.
    "OTEL_PYTHON_CONTEXT": ("contextvars_context",),
}
"""The values that our libraries take of variables that others set for libraries of their own."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROGRAM = str(Path(__file__).with_name("module_process.py"))
_ROOT = str(Path(__file__).parents[3])


def child_environment() -> dict[str, str]:
    """Returns the parent's environment for a child.

    It drops variables of other Pythons and programs, and exempts loopback from proxies.
    """
    environment = {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith("PYTHON")
        and variable != MODULE_PATH
        and value in _USABLE.get(variable, (value,))
    }
    for variable in ("no_proxy", "NO_PROXY"):
        environment[variable] = loopback_spared(environment.get(variable, ""))
    return environment


def drop_foreign_variables() -> None:
    """Drops other programs' variables that would stop this process; call it before imports."""
    for variable, values in _USABLE.items():
        if os.environ.get(variable) not in values:
            os.environ.pop(variable, None)


def loopback_spared(no_proxy: str) -> str:
    """Returns the no_proxy list with the loopback hosts added."""
    hosts = [host.strip() for host in no_proxy.split(",") if host.strip()]
    return ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])


def python_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `-m MODULE` or a file, with `python_environment`."""
    return [sys.executable, "-I", "-X", "utf8", _PROGRAM, *arguments]


def python_environment() -> dict[str, str]:
    """Returns an environment in which a child finds its parent's modules."""
    return child_environment() | {MODULE_PATH: json.dumps(module_path())}


def module_path() -> list[str]:
    """Returns the module search path: installed packages, then PYTHONPATH.

    It never contains the working folder or the script's folder. If Tandem itself was found through
    PYTHONPATH, that entry goes first.
    """
    added = [
        entry
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if os.path.isabs(entry) and not _is_installation(entry)
    ]
    avoided = {os.path.dirname(os.path.abspath(sys.argv[0])), *_current_folder()}
    path = [
        entry
        for entry in dict.fromkeys(sys.path)
        if _is_installation(entry)
        or (os.path.isabs(entry) and entry not in avoided and entry not in added)
    ]
    if _ROOT in added:
        path.insert(_standard_count(path), _ROOT)
    return list(dict.fromkeys([*path, *added, _ROOT]))


def _is_installation(entry: str) -> bool:
    """Returns whether the folder belongs to the Python installation."""
    paths = sysconfig.get_paths()
    return entry in (paths["purelib"], paths["platlib"]) or entry.startswith(paths["stdlib"])


def _current_folder() -> list[str]:
    try:
        return [os.getcwd()]
    except OSError:  # It was removed.
        return []


def _standard_count(entries: Sequence[str]) -> int:
    """Returns the position after the standard library's folders, which come first."""
    names = ("site-packages", "dist-packages")
    return next(
        (number for number, entry in enumerate(entries) if entry.rpartition("/")[2] in names),
        len(entries),
    )
