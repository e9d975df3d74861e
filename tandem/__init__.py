"""Tandem finds images by text and texts by images: retrieve fast, rerank smart.

`tandem.client` is the way in for a program that calls a running Tandem, and `tandem.Engine` (or
`tandem.AsyncEngine`) for one that has all of it in its own process. Nothing is imported here before
its first use, so that a program which only calls Tandem pays only for grpcio and protobuf.
"""

from typing import TYPE_CHECKING

from tandem.installation import PackageMissing
from tandem.installation import __version__ as __version__

if TYPE_CHECKING:
    from tandem.engine.async_engine import AsyncEngine as AsyncEngine
    from tandem.engine.engine import Engine as Engine


def __getattr__(name: str) -> object:
    if name not in ("AsyncEngine", "Engine"):
        raise AttributeError(f"module 'tandem' has no attribute {name!r}")
    try:
        from tandem.engine.async_engine import AsyncEngine
        from tandem.engine.engine import Engine
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "tandem":  # The client's distribution has no engine.
            package = "tandem-search"
        raise PackageMissing(f"tandem.{name}", package) from error
    globals().update(AsyncEngine=AsyncEngine, Engine=Engine)
    return globals()[name]
