"""Imports structlog without rich, in a service's own process: before everything else of ours.

structlog colours tracebacks on consoles by rich if that can be imported, which takes 70 ms of a
start's 550. Services log JSON (see `log`). A caller's own process that imports an engine keeps its
rich.
"""

import sys

# None stands for a module that is not there.
_HIDDEN = "rich"

if "structlog" not in sys.modules and _HIDDEN not in sys.modules:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules[_HIDDEN]
