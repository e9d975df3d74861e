"""Ports of loopback for processes that are yet to start."""

import os
import socket
from itertools import count

_HOST = "127.0.0.1"
# Below those that the kernel gives to connections that go out (from 32,768 on Linux): between the
# finding of such a port and the start of its process, any client's connection could take it.
_LOW_PORT = 10_000
_PORT_COUNT = 20_000
_START_SPREAD = 7_919

# Each process begins elsewhere and goes on from where it was: two that look at the same moment do
# not find the same, and what has just left a port is not followed there by something else.
_places = count(os.getpid() * _START_SPREAD)


def free_ports(port_count: int) -> list[int]:
    """Returns different ports on loopback that nobody listens on, none of them twice in a while."""
    ports: list[int] = []
    for _ in range(_PORT_COUNT):
        if len(ports) == port_count:
            return ports
        port = _LOW_PORT + next(_places) % _PORT_COUNT
        if _is_free(port):
            ports.append(port)
    raise OSError(f"{port_count} ports from {_LOW_PORT} to {_LOW_PORT + _PORT_COUNT} are not free")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind((_HOST, port))
        except OSError:
            return False
    return True
