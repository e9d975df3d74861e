"""Finds the Triton server of an unpacked nvidia-pytriton wheel, and prepares its environment.

The wheel is in a separate folder, without its dependencies, which would keep numpy below 2.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from tandem.installation import deployed_folder
from tandem.platform.child_processes.child_environment import child_environment
from tandem.platform.child_processes.keeper import ProcessFailed

WHEEL = "nvidia-pytriton==0.7.0"


class TritonUnavailable(ProcessFailed):
    """Triton cannot start on this machine, or did not become ready."""


def core_count() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def wheel_folder() -> Path:
    """Returns the server's folder in the wheel; raises TritonUnavailable if it is missing."""
    folders = [each / "pytriton" / "tritonserver" for each in _triton_folders()]
    folder = next(filter(Path.is_dir, folders), folders[0])
    if not folder.is_dir():
        raise TritonUnavailable(
            "no Triton server is installed (Linux x86_64 only); install it: "
            f"{sys.executable} -m pip install --no-deps --target {_triton_folders()[0]} {WHEEL}; "
            "tandem up --one-process needs none"
        )
    return folder


def stub_in(wheel: Path) -> Path:
    """Returns the stub for this Python; raises TritonUnavailable if there is none."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = wheel / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.is_file():
        raise TritonUnavailable(f"the Triton wheel has no stub for Python {version}")
    return stub


def make_backends(wheel: Path, work_folder: Path) -> Path:
    """Lays out a backend directory: `python` with the stub for this Python, and our `pytorch`."""
    backends = work_folder / "backends"
    python = backends / "python"
    shutil.copytree(wheel / "backends" / "python", python)
    stub = stub_in(wheel)
    # The backend looks for it next to the library.
    shutil.copy2(stub, python / stub.name)
    shutil.copytree(_backend_folder(), backends / "pytorch", ignore=shutil.ignore_patterns("__py*"))
    return backends


def triton_environment(wheel: Path, thread_count: int) -> dict[str, str]:
    """Returns the environment of the server and its stubs, independent of our own."""
    library_folders = [
        str(wheel.parents[1] / "nvidia_pytriton.libs"),
        # The folder of this Python's libpython, unless the linker knows it.
        str(sysconfig.get_config_var("LIBDIR")),
        # Keeps existing values: GPU images find the driver through them.
        *filter(None, [os.environ.get("LD_LIBRARY_PATH")]),
    ]
    return child_environment() | {
        "LD_LIBRARY_PATH": ":".join(library_folders),
        # The stub embeds Python and must find this environment's packages.
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "PYTHONPATH": sysconfig.get_path("platlib"),
        # A locale that is not installed aborts C++ programs; the stub reads UTF-8.
        "LC_ALL": "C",
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": str(thread_count),
        # Threads that spin while waiting would take cores from the other instance, which more
        # than halved the searches per second.
        "OMP_WAIT_POLICY": "passive",
        "TANDEM_TORCH_THREAD_COUNT": str(thread_count),
        # Otherwise torch's activations are returned to the kernel and faulted in at every call.
        "MALLOC_TRIM_THRESHOLD_": "2000000000",
        "MALLOC_MMAP_THRESHOLD_": "2000000000",
        # Otherwise each of its hundred threads has its own heap, which grows every hour.
        "MALLOC_ARENA_MAX": "2",
    }


def _triton_folders() -> list[Path]:
    """Returns where `make install` may have unpacked the wheel, most likely folder first.

    A .pth file can add another environment's packages to this one; Triton is then next to those.
    """
    packages = [Path(entry) for entry in sys.path if entry.endswith("/site-packages")]
    prefixes = [Path(sys.prefix), *(each.parents[2] for each in packages if len(each.parts) > 4)]
    return [prefix / "triton" for prefix in dict.fromkeys(prefixes)]


def _backend_folder() -> Path:
    """Returns the folder of our Python-based `pytorch` backend."""
    return deployed_folder("triton/backends") / "pytorch"
