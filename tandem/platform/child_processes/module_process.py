"""Runs a module or a file as Python does, with the parent's module search path.

    python -I module_process.py -m MODULE [ARGUMENTS]
    python -I module_process.py FILE [ARGUMENTS]

It runs by path in an isolated interpreter, so that neither files of the working folder nor
variables of another Python shadow installed modules.
"""

import json
import os
import runpy
import sys

MODULE_PATH = "TANDEM_MODULE_PATH"
"""The variable with the module search path, as JSON."""


def main() -> None:
    """Runs the module or file of the arguments."""
    sys.path[:] = json.loads(os.environ.pop(MODULE_PATH))
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
