"""Tandem finds images by text and texts by images: retrieve fast, rerank smart.

`tandem.client` is the way in for a program that calls a running Tandem, and `tandem.Engine` for one
that has all of it in its own process. Nothing is imported here before its first use, so that a
program which only calls Tandem pays for grpcio and protobuf alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedded.engine import Engine as Engine

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name != "Engine":
        raise AttributeError(f"module 'tandem' has no attribute {name!r}")
    try:
        # By name, because the client's distribution has this file and not the engine.
        engine: object = importlib.import_module("embedded.engine").Engine
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ImportError(
            f"tandem.Engine needs {package}; pip install 'tandem-search[local]'"
        ) from error
    globals()[name] = engine
    return engine
