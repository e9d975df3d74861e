"""Who reaches whom under the network policies, held to the table of docs/deploy.md."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from tests.support.deploy.rendered import ROOT, Resource, of_kind
from tests.support.deploy.workloads import selects, workloads

_NAME = "app.kubernetes.io/name"
# Ports on which nothing should answer, besides those on which something does.
_OTHER_PORTS = (53, 443, 5432, 6443, 8000, 9999, 19530)
_PRIVATE = tuple(
    map(ip_network, ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"))
)
_MILVUS_PROXY = {
    "app.kubernetes.io/instance": "tandem",
    "app.kubernetes.io/component": "proxy",
}
_ROW = re.compile(r"^\| (\S+) \| (\S+) \| ([\d, ]+) \| ([A-Z, ]+) \| (\S+) \|", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A pod, or an address outside."""

    name: str
    address: str
    labels: Mapping[str, str]
    namespace: str
    namespace_labels: Mapping[str, str]

    @property
    def is_ours(self) -> bool:
        """Whether it is in the namespace that the policies are of."""
        return self.namespace == "tandem"


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """One endpoint may open connections to another's port."""

    source: str
    target: str
    port: int
    protocol: str


def endpoints(resources: Sequence[Resource]) -> list[Endpoint]:
    """Returns a pod of each workload, and one of each kind of outsider."""
    pods = [
        (workload.resource["metadata"]["name"], dict(workload.labels))
        for workload in workloads(resources)
    ]
    ours = {"kubernetes.io/metadata.name": "tandem"}
    outside: list[tuple[str, dict[str, str], str, dict[str, str]]] = [
        ("neighbour", {_NAME: "neighbour"}, "tandem", ours),
        ("client", {}, "shop", {"tandem-client": "true"}),
        ("prometheus", {_NAME: "prometheus"}, "monitoring", {"tandem-monitoring": "true"}),
        ("grafana", {_NAME: "grafana"}, "monitoring", {"tandem-monitoring": "true"}),
        ("dns", {"k8s-app": "kube-dns"}, "kube-system", {}),
        ("kube-proxy", {"k8s-app": "kube-proxy"}, "kube-system", {}),
        ("postgres", {"cnpg.io/cluster": "tandem"}, "postgres", {}),
        ("milvus", _MILVUS_PROXY, "milvus", {}),
        ("stranger", {_NAME: "orchestrator"}, "default", {}),
    ]
    every = [(name, labels, "tandem", ours) for name, labels in pods] + [
        (name, labels, space, more | {"kubernetes.io/metadata.name": space})
        for name, labels, space, more in outside
    ]
    inside = [
        Endpoint(name, f"10.244.0.{number}", labels, space, more)
        for number, (name, labels, space, more) in enumerate(every, start=10)
    ]
    return [
        *inside,
        Endpoint("storage", "203.0.113.10", {}, "", {}),
        # Some providers give pods and API servers addresses of the range shared by carriers.
        Endpoint("shared-range", "100.64.0.10", {}, "", {}),
    ]


def permissions(
    resources: Sequence[Resource], endpoint: Endpoint, others: Sequence[Endpoint], direction: str
) -> set[tuple[str, int, str]] | None:
    """Returns the peers' names, ports and protocols in "Ingress" or "Egress"; None is all."""
    if not endpoint.is_ours:
        return None
    policies = [
        policy["spec"]
        for policy in of_kind(resources, "NetworkPolicy")
        if selects(policy["spec"]["podSelector"], endpoint.labels)
        and direction in policy["spec"]["policyTypes"]
    ]
    if not policies:
        return None
    side = "from" if direction == "Ingress" else "to"
    return {
        (other.name, port["port"], port.get("protocol", "TCP"))
        for policy in policies
        for rule in policy.get(direction.lower(), [])
        # A rule without peers or ports is for all of them: more than any edge of ours.
        for peer in rule[side]
        for port in rule["ports"]
        for other in others
        if other != endpoint and _is_peer(peer, other)
    }


def _is_peer(peer: Mapping[str, Any], other: Endpoint) -> bool:
    if "ipBlock" in peer:
        address, block = ip_address(other.address), peer["ipBlock"]
        is_excepted = any(address in ip_network(each) for each in block.get("except", []))
        return address in ip_network(block["cidr"]) and not is_excepted
    if not other.namespace:
        return False
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], other.namespace_labels):
            return False
    elif not other.is_ours:
        return False
    return selects(peer.get("podSelector", {}), other.labels)


def reachable(resources: Sequence[Resource]) -> set[Edge]:
    """Returns every connection that some endpoint may open to another, over every port."""
    every = endpoints(resources)
    allowed = {
        (endpoint.name, direction): permissions(resources, endpoint, every, direction)
        for endpoint in every
        for direction in ("Ingress", "Egress")
    }

    def permits(name: str, direction: str, what: tuple[str, int, str]) -> bool:
        its = allowed[name, direction]
        return its is None or what in its

    # All that a container names, and some that none does.
    containers = (each for workload in workloads(resources) for each in workload.containers())
    ports = {port for each in containers for port in each.ports.values()}.union(_OTHER_PORTS)
    return {
        Edge(source.name, target.name, port, protocol)
        for source, target in itertools.permutations(every, 2)
        # What outsiders do among themselves is not ours to say.
        if source.is_ours or target.is_ours
        for port in ports
        for protocol in ("TCP", "UDP")
        if permits(source.name, "Egress", (target.name, port, protocol))
        and permits(target.name, "Ingress", (source.name, port, protocol))
    }


def documented(resources: Sequence[Resource]) -> set[Edge]:
    """Returns the edges of the table in docs/deploy.md, as far as the overlay has what they are of.

    A row of a component counts where the component's policy is there; "private" is every endpoint
    that is not ours, at a private address.
    """
    every = endpoints(resources)
    policies = {policy["metadata"]["name"] for policy in of_kind(resources, "NetworkPolicy")}
    found: set[Edge] = set()
    rows = _ROW.findall((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"))
    assert rows, "docs/deploy.md has no table of edges"
    for source, target, port_list, protocols, when in rows:
        if when != "always" and when not in policies:
            continue
        for one, other, port, protocol in itertools.product(
            _called(source, every), _called(target, every), port_list.split(", "),
            protocols.split(", "),
        ):  # fmt: skip
            found.add(Edge(one.name, other.name, int(port), protocol))
    return found


def _called(name: str, every: Sequence[Endpoint]) -> list[Endpoint]:
    if name == "private":
        return [
            endpoint
            for endpoint in every
            if not endpoint.is_ours and any(ip_address(endpoint.address) in net for net in _PRIVATE)
        ]
    found = [
        endpoint
        for endpoint in every
        if (endpoint.labels.get(_NAME) == name if endpoint.is_ours else endpoint.name == name)
    ]
    assert found, f"docs/deploy.md: nothing is called {name}"
    return found


def edges(resources: Sequence[Resource]) -> Iterator[str]:
    """The matrix of reachable ports is the documented list of edges, no more and no less."""
    is_, should_be = reachable(resources), documented(resources)
    for edge in sorted(is_ - should_be):
        yield f"{edge} is open and not documented"
    for edge in sorted(should_be - is_):
        yield f"{edge} is documented and not open"
