"""Prepares the process of the `tandem` command before anything else is imported."""

import os
import sys

from tandem.installation import PackageMissing, missing_package
from tandem.platform.child_processes.child_environment import drop_foreign_variables, module_path

_INTERRUPTED_STATUS = 130


def main() -> None:
    """Runs the command line, independent of the working folder."""
    open_standard_streams()
    try:
        os.getcwd()  # noqa: PTH109 (relative paths go by it)
    except OSError as error:
        sys.exit(f"tandem: the folder it was started in is gone ({error.strerror}); go elsewhere")
    # Installed packages go before PYTHONPATH, and before the working folder.
    sys.path[:] = module_path()
    drop_foreign_variables()
    try:
        from tandem.cli.app import main as run

        run()  # each command imports its own packages
    except ModuleNotFoundError as error:
        sys.exit(str(PackageMissing("tandem", missing_package(error))))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED_STATUS)


def open_standard_streams() -> None:
    """Opens all three standard streams.

    Otherwise the next file or socket would take the number of a closed one, and receive what
    libraries print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
    # Python has None for those that were closed.
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115 (for good)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
