"""Network policies, kept by the kernel between network namespaces: one for each pod, on a bridge.

Each namespace enforces what the policies let its own pod send and receive, as a cluster's network
does on either side, by routing rules: a packet that no rule lets through has no route. They need
nothing but iproute2, where iptables is often not installed. They keep no state, so an answer is
known by the port that it comes from.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.support.deploy.network_edges import Edge, Endpoint, Permission, endpoints, permissions
from tests.support.deploy.rendered import Resource

_BRIDGE = "tandem-bridge"
# What is let through answers in milliseconds; what is not never answers.
_PATIENCE_SECONDS = 2.0
# Listens on every port, says so, then tries what it is told and prints what was answered.
_AGENT = """
import errno, json, selectors, socket, sys, threading, time
ports = json.loads(sys.stdin.readline())
for port in ports:
    listener = socket.socket()
    listener.bind(("0.0.0.0", port))
    listener.listen(64)
    datagrams = socket.socket(type=socket.SOCK_DGRAM)
    datagrams.bind(("0.0.0.0", port))
    def echo(datagrams=datagrams):
        while True:
            datagrams.sendto(b"here", datagrams.recvfrom(16)[1])
    threading.Thread(target=echo, daemon=True).start()
    def accept(listener=listener):
        while True:
            listener.accept()[0].close()
    threading.Thread(target=accept, daemon=True).start()
print("ready", flush=True)

def probe(address, port, protocol):
    kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
    sock = socket.socket(type=kind)
    sock.setblocking(False)
    refused = sock.connect_ex((address, port)) not in (0, errno.EINPROGRESS)
    if protocol == "UDP" and not refused:
        sock.send(b"there?")
    return sock, refused

def answered(sock, protocol):
    try:
        if protocol == "UDP":
            return sock.recv(16) == b"here"
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    except OSError:
        return False

def tried(tries, seconds):
    poller, open_probes, found = selectors.DefaultSelector(), 0, []
    for each in tries:
        sock, refused = probe(*each)
        if refused:
            sock.close()
            continue
        event = selectors.EVENT_READ if each[2] == "UDP" else selectors.EVENT_WRITE
        poller.register(sock, event, each)
        open_probes += 1
    deadline = time.monotonic() + seconds
    while open_probes and time.monotonic() < deadline:
        for key, _ in poller.select(max(0, deadline - time.monotonic())):
            if answered(key.fileobj, key.data[2]):
                found.append(key.data)
            poller.unregister(key.fileobj)
            key.fileobj.close()
            open_probes -= 1
    for key in list(poller.get_map().values()):
        key.fileobj.close()
    poller.close()
    return found

for line in sys.stdin:
    print(json.dumps(tried(*json.loads(line))), flush=True)
"""


@functools.cache
def why_not() -> str:
    """Returns why no namespaces can be made here, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "no iproute2 or util-linux here"
    with ExitStack() as stack:
        try:
            stack.enter_context(_namespace())
        except OSError as error:
            return f"no network namespaces here: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A namespace and the process in it that listens and probes."""

    endpoint: Endpoint
    namespace: int
    agent: subprocess.Popen[str]

    def tell(self, message: object) -> None:
        """Gives the process one thing to do."""
        assert self.agent.stdin is not None
        self.agent.stdin.write(f"{json.dumps(message)}\n")
        self.agent.stdin.flush()

    def answer(self) -> str:
        """Returns what it says when it is done."""
        assert self.agent.stdout is not None
        return self.agent.stdout.readline()


def reached(pods: Sequence[Pod], edges: Iterable[Edge], ports: Sequence[int]) -> set[Edge]:
    """Tries every edge, all at once, and returns those over which something answered."""
    addresses = {pod.endpoint.name: pod.endpoint.address for pod in pods}
    for pod in pods:
        pod.tell(ports)
    for pod in pods:
        assert pod.answer() == "ready\n"
    tries: dict[str, dict[tuple[str, int, str], Edge]] = {pod.endpoint.name: {} for pod in pods}
    for edge in edges:
        tries[edge.source][addresses[edge.target], edge.port, edge.protocol] = edge
    for pod in pods:
        pod.tell([[*tries[pod.endpoint.name]], _PATIENCE_SECONDS])
    found: set[Edge] = set()
    for pod in pods:
        its = tries[pod.endpoint.name]
        found |= {
            its[address, port, protocol] for address, port, protocol in json.loads(pod.answer())
        }
    return found


@contextmanager
def pod_network(resources: Sequence[Resource]) -> Iterator[list[Pod]]:
    """Makes a pod of each endpoint, under the policies; takes all of it down at the end."""
    every = endpoints(resources)
    with ExitStack() as stack:
        switch = stack.enter_context(_namespace())
        _ip(switch, f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up")
        spaces = [stack.enter_context(_namespace()) for _ in every]
        for number, (endpoint, space) in enumerate(zip(every, spaces, strict=True)):
            _plug_in(switch, space, number, endpoint, every)
            if endpoint.is_ours:
                _ip(space, *_rules(resources, endpoint, every))
        pods = [
            Pod(endpoint, space, stack.enter_context(_agent(space)))
            for endpoint, space in zip(every, spaces, strict=True)
        ]
        yield pods


def _plug_in(
    switch: int, space: int, number: int, endpoint: Endpoint, every: Sequence[Endpoint]
) -> None:
    _ip(
        switch,
        f"link add pod{number} type veth peer name eth0 netns {space}",
        f"link set pod{number} master {_BRIDGE}",
        f"link set pod{number} up",
    )
    neighbours = [
        # Told, because the rules have no word for the question who has an address.
        f"neigh replace {other.address} lladdr {_hardware_address(place)} dev eth0 nud permanent"
        for place, other in enumerate(every)
        if other is not endpoint
    ]
    _ip(
        space,
        "link set lo up",
        f"link set eth0 address {_hardware_address(number)}",
        "link set eth0 up",
        f"addr add {endpoint.address}/32 dev eth0",
        *(f"route add {other.address}/32 dev eth0" for other in every if other is not endpoint),
        *neighbours,
    )


def _rules(
    resources: Sequence[Resource], endpoint: Endpoint, every: Sequence[Endpoint]
) -> Iterator[str]:
    """Yields what `ip` is told so that the pod sends and receives as its policies say."""
    # What comes in is the pod's own only where a rule below says so.
    yield "rule add priority 10 iif lo lookup local"
    yield "rule del priority 0"
    for direction, sent_by, received_by in (
        ("Egress", "dport", "sport"),
        ("Ingress", "sport", "dport"),
    ):
        for allowed in _distinct(permissions(resources, endpoint, every, direction)):
            peer, flow = allowed.peer.address, f"ipproto {allowed.protocol.lower()}"
            yield (
                f"rule add priority 20 iif lo to {peer} {flow} {sent_by} {allowed.port} lookup main"
            )
            yield (
                f"rule add priority 20 iif eth0 from {peer} {flow} {received_by} {allowed.port} "
                "lookup local"
            )
    yield "rule add priority 30 prohibit"


def _distinct(allowed: Iterable[Permission] | None) -> list[Permission]:
    assert allowed is not None, "a pod of ours that no policy is over"
    return [*{(each.peer.name, each.port, each.protocol): each for each in allowed}.values()]


def _hardware_address(number: int) -> str:
    return f"02:00:00:00:00:{number + 1:02x}"


@contextmanager
def _namespace() -> Iterator[int]:
    """Makes a network namespace; yields the id of a process in it, which ends with it."""
    holder = subprocess.Popen(
        ["unshare", "--net", "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with holder:
        try:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.write("up\n")
            holder.stdin.flush()
            if holder.stdout.readline() != "up\n":
                raise OSError(holder.stderr.read() if holder.stderr else "")
            yield holder.pid
        finally:
            holder.kill()


@contextmanager
def _agent(space: int) -> Iterator[subprocess.Popen[str]]:
    agent = subprocess.Popen(
        ["nsenter", f"--net=/proc/{space}/ns/net", sys.executable, "-S", "-c", _AGENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with agent:
        try:
            yield agent
        finally:
            agent.kill()


def _ip(space: int, *commands: str) -> None:
    subprocess.run(
        ["nsenter", f"--net=/proc/{space}/ns/net", "ip", "-batch", "-"],
        input="".join(f"{command}\n" for command in commands),
        text=True,
        check=True,
        timeout=30,
    )
