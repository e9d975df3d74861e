"""Ports that are handed out are free, and stay so until they are used."""

import socket
from pathlib import Path

from tandem.local.free_ports import free_ports


def test_outgoing_connections_do_not_take_the_ports() -> None:
    """They lie outside of what the kernel chooses from."""
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert not {*free_ports(200)} & {*range(int(low), int(high) + 1)}


def test_none_is_handed_out_twice_in_a_while() -> None:
    """Not in one call, and not by the next."""
    assert len({*free_ports(500), *free_ports(500)}) == 1_000


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    """The next in turn is taken, and so left out."""
    [port] = free_ports(1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port + 1))
        listener.listen()

        [following] = free_ports(1)

    assert following > port + 1 or following < port
