"""Parses addresses, such as host:port, before anything is called."""

import ipaddress
import re
from dataclasses import dataclass

# gRPC's own target names, accepted as they are: https://grpc.github.io/grpc/core/md_doc_naming.html
_TARGET = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds|passthrough):")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_EXAMPLE_PORT = 7400
_LAST_PORT = 65_535
_SHORT_PORT_DIGIT_COUNT = 3
# DNS's limit; Python's lookup raises UnicodeError for a longer or an empty label.
_MOST_LABEL_LETTERS = 63


class AddressInvalid(ValueError):
    """The text is not an address; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Address:
    """A gRPC target: one server, or several equal ones."""

    target: str
    is_loopback: bool
    """Whether every server is on this machine, so that calls skip proxies."""
    host: str | None = None
    """The host of host:port, without brackets; unset for other kinds of targets."""
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parses `host:port`, `[IPv6]:port` or one of gRPC's own target names.

        Raises AddressInvalid, which says what to write instead.
        """
        given = text.strip()
        if not given:
            raise AddressInvalid(f"the address is empty; write {_written('127.0.0.1')}")
        if any(letter.isspace() or not letter.isprintable() for letter in given):
            raise AddressInvalid(f"{text!r} is not an address: it has a space or control character")
        if _TARGET.match(given) and not _HOST_AND_PORT.fullmatch(given):
            return cls(given, _is_loopback_target(given))
        host, port = _host_and_port(given)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(target, _is_loopback(host), host, port)

    @property
    def channel_options(self) -> tuple[tuple[str, int], ...]:
        """Returns channel options for this target."""
        return (("grpc.enable_http_proxy", 0),) if self.is_loopback else ()

    def __str__(self) -> str:
        return self.target


# A host may have the name dns or unix.
_HOST_AND_PORT = re.compile(r"[a-z0-9-]+:[0-9]{1,5}")


def _host_and_port(given: str) -> tuple[str, int]:
    if scheme := _SCHEME.match(given):
        rest = given[scheme.end() :].partition("/")[0].rpartition("@")[2]
        shown = rest if _has_port(rest) else _written(rest or "127.0.0.1")
        raise AddressInvalid(
            f"{given}: leave {scheme[0]} out, Tandem speaks gRPC only; write {shown}"
        )
    if "/" in given or "?" in given or "#" in given:
        rest = re.split(r"[/?#]", given, maxsplit=1)[0]
        shown = rest if _has_port(rest) else _written(rest or "127.0.0.1")
        raise AddressInvalid(f"{given}: an address has no path; write {shown}")
    if given.startswith("["):
        host, bracket, rest = given[1:].partition("]")
        if not bracket or not _is_ipv6(host):
            raise AddressInvalid(f"{given}: {host!r} is not an IPv6 address")
        return host, _port(given, rest.removeprefix(":") if rest[:1] == ":" else "", f"[{host}]")
    if given.count(":") > 1:
        head, _, tail = given.rpartition(":")
        # ::1:7400 is an IPv6 address too, but hardly meant as one.
        if _is_ipv6(head) and tail.isdigit() and len(tail) > _SHORT_PORT_DIGIT_COUNT:
            raise AddressInvalid(f"{given}: put an IPv6 address in brackets; write [{head}]:{tail}")
        if _is_ipv6(given):
            raise AddressInvalid(f"{given}: put an IPv6 address in brackets; write [{given}]:7400")
        raise AddressInvalid(f"{given} is not host:port; write one, such as 127.0.0.1:7400")
    host, _, port = given.partition(":")
    if not host:
        raise AddressInvalid(f"{given} has no host; write {_written('127.0.0.1', port)}")
    if host.isdigit() and not port:
        raise AddressInvalid(f"{given} is only a port; write {_written('127.0.0.1', host)}")
    labels = host.removesuffix(".").split(".")
    if not _HOST.fullmatch(host) or not all(
        0 < len(each) <= _MOST_LABEL_LETTERS for each in labels
    ):
        raise AddressInvalid(f"{given}: {host!r} is not a host name")
    return host, _port(given, port, host)


def _port(given: str, text: str, host: str) -> int:
    if not text:
        raise AddressInvalid(f"{given} has no port; write {_written(host)}")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _LAST_PORT):
        raise AddressInvalid(f"{given}: {text!r} is not a port; ports are 1 to {_LAST_PORT}")
    return int(text)


def _has_port(text: str) -> bool:
    return re.fullmatch(r"(\[[^\]]+\]|[^:]+):[0-9]{1,5}", text) is not None


def _written(host: str, port: str = "") -> str:
    return f"{host.removesuffix(':')}:{port if port.isdigit() else _EXAMPLE_PORT}"


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_loopback_target(target: str) -> bool:
    scheme, _, rest = target.partition(":")
    if scheme.startswith("unix"):
        return True
    places = rest.rpartition("/")[2].split(",")
    return all(_is_loopback(_bare_host(place)) for place in places)


def _bare_host(place: str) -> str:
    """Returns the host of host:port, [IPv6]:port or a host."""
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place if place.count(":") > 1 else place.partition(":")[0]
