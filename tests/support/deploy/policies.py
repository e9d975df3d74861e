"""Every policy, over one rendered overlay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.support.deploy import merged_policies, network_edges, pod_policies, service_policies
from tests.support.deploy.rendered import Resource

Policy = Callable[[Sequence[Resource]], Iterator[str]]

POLICIES: tuple[Policy, ...] = (
    pod_policies.pods,
    pod_policies.tokens,
    pod_policies.availability,
    pod_policies.selectors,
    pod_policies.namespaces,
    # First of these: the others read settings.
    service_policies.settings,
    service_policies.ports,
    service_policies.addresses,
    service_policies.certificates,
    service_policies.certificates_of_triton,
    service_policies.access_tokens,
    service_policies.headless,
    service_policies.shards,
    service_policies.probes,
    service_policies.grace,
    service_policies.triton,
    merged_policies.merged,
    network_edges.edges,
)


def faults(resources: Sequence[Resource]) -> list[str]:
    """Returns what is wrong, policy by policy; where settings are, no more than up to them."""
    found: list[str] = []
    for policy in POLICIES:
        found += [f"{policy.__name__}: {fault}" for fault in policy(resources)]
        if policy is service_policies.settings and found:
            break
    return found
