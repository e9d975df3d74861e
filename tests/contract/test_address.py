"""Addresses as people write them are understood, or the error says what to write."""

import pytest

from tandem.client import Client
from tandem.contract.address import Address, AddressInvalid

ADDRESSES = [
    ("127.0.0.1:7400", "127.0.0.1:7400", True),
    (" localhost:7400\n", "localhost:7400", True),
    ("[::1]:7400", "[::1]:7400", True),
    ("search.example.org:443", "search.example.org:443", False),
    ("[fe80::1%eth0]:5", "[fe80::1%eth0]:5", False),
    ("dns:///orchestrator:7400", "dns:///orchestrator:7400", False),
    ("dns:///localhost:7400", "dns:///localhost:7400", True),
    ("ipv4:127.0.0.1:1,127.0.0.1:2", "ipv4:127.0.0.1:1,127.0.0.1:2", True),
    ("ipv4:127.0.0.1:1,10.0.0.1:2", "ipv4:127.0.0.1:1,10.0.0.1:2", False),
    ("unix:/run/tandem", "unix:/run/tandem", True),
]


def test_valid_addresses_are_parsed() -> None:
    """Into what gRPC dials, and whether that stays on this machine."""
    parsed = [(text, Address.parse(text)) for text, *_ in ADDRESSES]

    assert [(text, each.target, each.is_loopback) for text, each in parsed] == ADDRESSES


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty; write 127.0.0.1:7400"),
        ("localhost", "no port; write localhost:7400"),
        (":7400", "no host; write 127.0.0.1:7400"),
        ("7400", "only a port; write 127.0.0.1:7400"),
        ("http://127.0.0.1:7400", "leave http:// out.*; write 127.0.0.1:7400"),
        ("grpc://[::1]:7400/", r"write \[::1\]:7400"),
        ("localhost:7400/", "no path; write localhost:7400"),
        ("::1:7400", r"write \[::1\]:7400"),
        ("[::1]", r"no port; write \[::1\]:7400"),
        ("[localhost]:7400", "not an IPv6 address"),
        ("localhost:0", "ports are 1 to 65535"),
        ("localhost:٧٤٠٠", "ports are 1 to 65535"),
        ("a b:7400", "space or control character"),
        ("a:b:c", "is not host:port"),
        ("höst:7400", "not a host name"),
        ("a..b:7400", "not a host name"),
    ],
)
def test_invalid_addresses_say_what_to_write(text: str, why: str) -> None:
    with pytest.raises(AddressInvalid, match=why) as told:
        Address.parse(text)

    assert "\n" not in str(told.value)


def test_the_sdk_says_so_too() -> None:
    with pytest.raises(ValueError, match="write localhost:7400"):
        Client("localhost")
