"""Runs a module or a file as Python does, and looks for modules where the parent says.

    python -I module_process.py -m MODULE [ARGUMENTS]
    python -I module_process.py FILE [ARGUMENTS]

Run by its path in an isolated interpreter, so that no file of the folder where it is started, and
no variable of another Python, comes before what is installed.
"""

import json
import os
import runpy
import sys

MODULE_PATH = "TANDEM_MODULE_PATH"
"""The variable with the folders to look for modules in, as JSON."""


def main() -> None:
    """Runs what the arguments name."""
    sys.path[:] = json.loads(os.environ.pop(MODULE_PATH))
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
