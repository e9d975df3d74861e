"""Assigns the ports of a local stack, and asks whether one answers."""

import http.client
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field

from tandem.stack.free_ports import free_ports

HOST = "127.0.0.1"
_STATELESS = ("encoder", "orchestrator")


@dataclass(frozen=True, slots=True)
class Ports:
    """The port of each process."""

    orchestrator: int
    encoder: int
    index: tuple[int, ...]
    rerank: tuple[int, ...]
    triton: int
    metrics: Mapping[int, int]
    """The metrics port of each port above."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Ports of further replicas of stateless services: encoder-1, orchestrator-1."""
    triton_tls: int = 7441
    """The port of Triton's TLS proxy, with --tls."""
    gateway: int = 7450
    """The port of HTTP."""

    @classmethod
    def fixed(cls, shard_count: int) -> "Ports":
        """Returns the documented ports."""
        index = tuple(7420 + number for number in range(shard_count))
        rerank = tuple(7430 + number for number in range(shard_count))
        every = (7400, 7410, *index, *rerank, 7440, 7450)
        return cls(7400, 7410, index, rerank, 7440, {port: port + 100 for port in every})

    @classmethod
    def free(cls, shard_count: int, replica_count: int = 1) -> "Ports":
        """Returns free ports, for stacks that run next to each other.

        `replica_count` applies to stateless services.
        """
        names = [f"{kind}-{number}" for kind in _STATELESS for number in range(1, replica_count)]
        count = 4 + 2 * shard_count + len(names)
        found = free_ports(2 * count + 1)
        serving, metrics, triton_tls = found[:count], found[count:-1], found[-1]
        return cls(
            orchestrator=serving[0],
            encoder=serving[1],
            triton=serving[2],
            gateway=serving[3],
            index=tuple(serving[4 : 4 + shard_count]),
            rerank=tuple(serving[4 + shard_count : 4 + 2 * shard_count]),
            metrics=dict(zip(serving, metrics, strict=True)),
            replicas=dict(zip(names, serving[4 + 2 * shard_count :], strict=True)),
            triton_tls=triton_tls,
        )


def answers_ok(port: int, path: str) -> bool:
    """Returns whether a process answers a GET with 200, within a second."""
    # Not urllib, which would use a proxy for loopback.
    connection = http.client.HTTPConnection(HOST, port, timeout=1.0)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    return False
