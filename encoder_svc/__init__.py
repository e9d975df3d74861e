"""Serves tandem.encoding over gRPC."""
