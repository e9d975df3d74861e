"""Serves tandem.local.encoding over gRPC."""
