"""Where the tests of clients/go and clients/java find Debian's programs and libraries."""

import os
import shutil
from pathlib import Path

# `/`, or a folder into which packages were unpacked.
ROOT = Path(os.environ.get("TANDEM_DEBIAN_ROOT", "/"))
JARS = ROOT / "usr/share/java"
GO_SOURCES = ROOT / "usr/share/gocode"

# golang-1.19-go, without golang-go, has no link in usr/bin.
_PROGRAMS = [str(ROOT / "usr/bin"), str(ROOT / "usr/lib/go-1.19/bin"), os.environ["PATH"]]
_PATH = os.pathsep.join(_PROGRAMS)


def program(name: str) -> str | None:
    """Returns the path of a program, or None if it is not installed."""
    return shutil.which(name, path=_PATH)


def are_installed(*names: str) -> bool:
    """Returns whether all programs of these names are installed."""
    return all(program(name) for name in names)


def with_programs(**variables: str) -> dict[str, str]:
    """Returns the environment, with Debian's programs on its PATH and more variables."""
    environment = os.environ | {"PATH": _PATH} | variables
    if Path("/") != ROOT:
        libraries = map(str, ROOT.glob("usr/lib/*-linux-gnu"))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    return environment
