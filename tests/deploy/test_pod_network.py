"""The network policies for real: every documented edge works between namespaces, no other does."""

from __future__ import annotations

import itertools

import pytest

from tests.support.deploy.network_edges import Edge, documented, endpoints, ports
from tests.support.deploy.pod_network import pod_network, reached, why_not
from tests.support.deploy.rendered import Resource, one, rendered

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "")


def open_edges(resources: list[Resource]) -> set[Edge]:
    """Tries every port of every endpoint from every other, and returns over what was answered."""
    tries = [
        Edge(source.name, target.name, port, protocol)
        for source, target in itertools.permutations(endpoints(resources), 2)
        if source.is_ours or target.is_ours
        for port in ports(resources)
        for protocol in ("TCP", "UDP")
    ]
    assert len(tries) > 3_000
    with pod_network(resources) as pods:
        return reached(pods, tries, ports(resources))


def test_every_documented_edge_works_and_no_other() -> None:
    """With backup and object storage too: over 3,000 ports tried of which a few dozen answer."""
    resources = rendered("full")

    assert open_edges(resources) == documented(resources)


def test_a_policy_too_many_is_an_edge_too_many() -> None:
    """The positive control: what a wrong policy opens is open here."""
    resources = rendered("laptop")
    policy = one(resources, "NetworkPolicy", "triton")["spec"]
    policy["ingress"].append(
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 7540, "protocol": "TCP"}]}
    )

    found = open_edges(resources)

    outsiders = ("client", "dns", "grafana", "kube-proxy", "stranger")
    assert found - documented(resources) == {
        Edge(name, "triton", 7540, "TCP") for name in outsiders
    }
