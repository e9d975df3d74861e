"""Reads from a call's connection who calls."""

import grpc

from tandem.chassis.access.callers import caller_of

_NAME_KEYS = ("x509_subject_alternative_name", "x509_common_name")


def caller_key(context: grpc.aio.ServicerContext) -> str:
    """Returns the caller of a call: the token's name, or without tokens the host."""
    return caller_of(peer_host(context))


def peer_host(context: grpc.aio.ServicerContext) -> str:
    """Returns the peer's address without its port, which differs by connection."""
    return str(context.peer() or "").rpartition(":")[0]


def certificate_names(context: grpc.aio.ServicerContext) -> set[str]:
    """Returns the names in the certificate of a call's connection; none without one."""
    shown = context.auth_context()
    return {name.decode(errors="replace") for key in _NAME_KEYS for name in shown.get(key, ())}
