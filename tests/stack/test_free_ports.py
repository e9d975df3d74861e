"""Ports that are handed out are free, and stay so until they are used."""

import socket
from itertools import count
from pathlib import Path

import pytest

import tandem.stack.free_ports
from tandem.stack.free_ports import free_ports


def test_outgoing_connections_do_not_take_the_ports() -> None:
    """They lie outside of what the kernel chooses from."""
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert not {*free_ports(200)} & {*range(int(low), int(high) + 1)}


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    """The next in turn is taken, and so left out."""
    [port] = free_ports(1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port + 1))
        listener.listen()

        [following] = free_ports(1)

    assert following > port + 1 or following < port


def test_a_port_is_not_handed_out_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    found = []
    for _ in range(2):
        # Another process may search from the same place.
        monkeypatch.setattr(tandem.stack.free_ports, "_places", count(port - 10_000))
        found += free_ports(1)
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(server.getsockname()),
        ):
            pass

    assert port not in found


def test_reserved_ports_take_few_files() -> None:
    """A process may open about a thousand files."""
    free_ports(1_000)
    before = len(list(Path("/proc/self/fd").iterdir()))
    free_ports(1_000)

    assert abs(len(list(Path("/proc/self/fd").iterdir())) - before) < 5
    assert before < 500
