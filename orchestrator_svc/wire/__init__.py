"""Converts between protobuf messages and the orchestrator's own types."""
