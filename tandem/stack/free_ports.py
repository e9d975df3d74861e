"""Finds free loopback ports for processes that start later."""

import os
import socket
from collections import deque
from itertools import count

_HOST = "127.0.0.1"
# Below the kernel's range for outgoing connections (from 32,768 on Linux), because any client's
# connection could take such a port before its process starts.
_LOW_PORT = 10_000
_PORT_COUNT = 20_000
_START_SPREAD = 7_919
# Of a process. It may open about a thousand files.
_MAX_RESERVED_COUNT = 256

# Each process starts at another port and continues from there: a port is not reused at once.
_places = count(os.getpid() * _START_SPREAD)

# Sockets that are bound to the last ports handed out, by their file descriptors. No other search
# then finds these ports. A server can listen there nevertheless, because it sets SO_REUSEADDR, as
# these sockets do, and they do not listen.
_reserved: deque[int] = deque()


def free_ports(port_count: int) -> list[int]:
    """Returns distinct free loopback ports, and reserves them until this process ends.

    No call hands them out again, in this process or in another, also while a server there starts
    or has stopped. Only the last 256 ports of a process are reserved.
    """
    ports: list[int] = []
    for _ in range(_PORT_COUNT):
        if len(ports) == port_count:
            return ports
        port = _LOW_PORT + next(_places) % _PORT_COUNT
        if _is_reserved_now(port):
            ports.append(port)
    raise OSError(f"{port_count} ports from {_LOW_PORT} to {_LOW_PORT + _PORT_COUNT} are not free")


def _is_reserved_now(port: int) -> bool:
    """Reserves a port; returns False if it is not free."""
    with socket.socket() as listener:
        try:
            listener.bind((_HOST, port))
        except OSError:
            return False
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(listener.detach())
    if len(_reserved) > _MAX_RESERVED_COUNT:
        os.close(_reserved.popleft())
    return True
