"""What a child process is started with: an environment that nothing odd of the parent's reaches."""
# ruff: noqa: PTH100, PTH109, PTH117, PTH120 (entries of sys.path are texts, compared as such)

import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tandem.child_processes.module_process import MODULE_PATH

PROTOBUF_CHOICE = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
"""What others set for an old release: protobuf 4 and later fails to import with some values."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROGRAM = str(Path(__file__).with_name("module_process.py"))
_ROOT = str(Path(__file__).parents[2])


def child_environment() -> dict[str, str]:
    """Returns the parent's environment for a child.

    Less what is meant for another Python, and with loopback spared from whatever proxy is set.
    """
    environment = {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith("PYTHON") and variable not in (MODULE_PATH, PROTOBUF_CHOICE)
    }
    for variable in ("no_proxy", "NO_PROXY"):
        environment[variable] = loopback_spared(environment.get(variable, ""))
    return environment


def loopback_spared(no_proxy: str) -> str:
    """Returns a list of hosts that are reached without a proxy, with loopback's among them."""
    hosts = [host.strip() for host in no_proxy.split(",") if host.strip()]
    return ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])


def python_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `-m MODULE` or a file in a child; see `python_environment`."""
    return [sys.executable, "-I", "-X", "utf8", _PROGRAM, *arguments]


def python_environment() -> dict[str, str]:
    """Returns a child's environment in which it finds the modules that its parent finds."""
    return child_environment() | {MODULE_PATH: json.dumps(module_path())}


def module_path() -> list[str]:
    """Returns the folders of modules: what is installed first, then what PYTHONPATH adds.

    Never the folder where Tandem was started or its script lies. Where PYTHONPATH is how Tandem
    itself was found, that folder of it goes before other installs.
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
    """Returns whether Python itself, or what is installed into it, lies there."""
    paths = sysconfig.get_paths()
    return entry in (paths["purelib"], paths["platlib"]) or entry.startswith(paths["stdlib"])


def _current_folder() -> list[str]:
    try:
        return [os.getcwd()]
    except OSError:  # it was removed
        return []


def _standard_count(entries: Sequence[str]) -> int:
    """Returns where packages begin: behind the standard library, whose folders come first."""
    names = ("site-packages", "dist-packages")
    return next(
        (number for number, entry in enumerate(entries) if entry.rpartition("/")[2] in names),
        len(entries),
    )
