"""Finds free loopback ports for processes that start later."""

import os
import socket
from itertools import count

_HOST = "127.0.0.1"
# Below the kernel's range for outgoing connections (from 32,768 on Linux), because any client's
# connection could take such a port before its process starts.
_LOW_PORT = 10_000
_PORT_COUNT = 20_000
_START_SPREAD = 7_919

# Each process starts at another port and continues from there, so that concurrent searches find
# different ports, and a port is not reused at once.
_places = count(os.getpid() * _START_SPREAD)


def free_ports(port_count: int) -> list[int]:
    """Returns distinct free loopback ports, and does not repeat them soon."""
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
