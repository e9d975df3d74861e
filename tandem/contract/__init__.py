"""Defines the types and rules of the public contract.

The SDK may import this package, so it needs only grpcio and protobuf.
"""
