"""Tandem finds images by text and texts by images: retrieve fast, rerank smart.

Nothing is imported here, so that a program which only calls Tandem pays for grpcio and protobuf
alone. `tandem.client` is the way in for such a program.
"""

__version__ = "0.1.0"
