"""Tandem finds images by text and texts by images: retrieve fast, rerank smart.

`tandem.client` is the way in for a program that calls a running Tandem, and `tandem.Engine` (or
`tandem.AsyncEngine`) for one that has all of it in its own process. Nothing is imported here before
its first use, so that a program which only calls Tandem pays only for grpcio and protobuf.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedded.async_engine import AsyncEngine as AsyncEngine
    from embedded.engine import Engine as Engine

__version__ = "0.1.0"

_ENGINES = {"Engine": "embedded.engine", "AsyncEngine": "embedded.async_engine"}


def __getattr__(name: str) -> object:
    if name not in _ENGINES:
        raise AttributeError(f"module 'tandem' has no attribute {name!r}")
    try:
        # By name, because the client's distribution has this file and not the engine.
        engine: object = getattr(importlib.import_module(_ENGINES[name]), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ImportError(
            f"tandem.{name} needs {package}; pip install 'tandem-search[local]'"
        ) from error
    globals()[name] = engine
    return engine
