"""The positive control of the policies: manifests with one thing wrong, each caught by name."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.deploy.policies import faults
from tests.support.deploy.rendered import Resource, named, rendered
from tests.support.deploy.schemas import latest_versions, schema_faults

GONE: Final = object()
Row = tuple[str, str, Any, str, str]
"""Resource, where in it, what is put there, and the policy and the words that find it."""

_SHARD_DOOR: Final = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway"}}}

# In the overlay `gpu`. "pod" is the spec of a workload's pods; in a list, a name or a number.
GPU: list[Row] = [
    ("Deployment/encoder", "pod.securityContext.runAsNonRoot", GONE, "pods", "may run as root"),
    ("Deployment/triton", "pod.volumes.+", {"name": "node", "hostPath": {}}, "pods", "volume node"),
    (
        "StatefulSet/shard",
        "pod.containers.rerank.securityContext.capabilities",
        {"drop": ["ALL"], "add": ["SYS_PTRACE"]},
        "pods",
        "shard rerank: keeps capabilities",
    ),
    (
        "Deployment/encoder",
        "pod.initContainers.models.resources.limits.memory",
        GONE,
        "pods",
        "no memory in its limits",
    ),
    ("Deployment/encoder", "pod.containers.encoder.image", "a/b:latest", "pods", "is not pinned"),
    (
        "Deployment/triton",
        "pod.containers.triton.image",
        "nvcr.io/nvidia/tritonserver:26.05-py3",
        "triton",
        "is not above the bulletin",
    ),
    (
        "Deployment/orchestrator",
        "pod.automountServiceAccountToken",
        True,
        "tokens",
        "token mounted is True",
    ),
    ("StatefulSet/shard", "pod.terminationGracePeriodSeconds", 25, "grace", "drains for 25.0 s"),
    (
        "ConfigMap/encoder-settings",
        "data.ENCODER_GRACE_SECOND",
        "20",
        "settings",
        "ENCODER_GRACE_SECOND is not known",
    ),
    ("StatefulSet/shard", "spec.replicas", 3, "shards", "shard counts are not 3"),
    (
        "ConfigMap/orchestrator-settings",
        "data.ORCHESTRATOR_INDEX_ADDRESSES",
        "shard-1.shard:7420,shard-0.shard:7420",
        "shards",
        "index addresses",
    ),
    (
        "StatefulSet/shard",
        "pod.containers.rerank.volumeMounts.store.readOnly",
        True,
        "shards",
        "LMDB tracks no readers",
    ),
    ("StatefulSet/shard", "pod.shareProcessNamespace", GONE, "shards", "one process namespace"),
    (
        "Deployment/encoder",
        "pod.containers.encoder.livenessProbe.grpc.service",
        GONE,
        "probes",
        "livenessProbe asks",
    ),
    (
        "Deployment/orchestrator",
        "pod.containers.orchestrator.readinessProbe",
        GONE,
        "probes",
        "no readinessProbe",
    ),
    (
        "Deployment/triton",
        "pod.containers.triton.livenessProbe.grpc.port",
        7440,
        "triton",
        "whether it lives",
    ),
    ("Deployment/triton", "pod.containers.triton.args.1", "--a=b", "triton", "without"),
    ("Service/encoder", "spec.ports.0.port", 7411, "ports", "grpc is not a port"),
    ("Service/encoder", "spec.clusterIP", "10.96.0.7", "headless", "Service/encoder"),
    ("Service/gateway", "spec.clusterIP", "None", "headless", "is headless"),
    (
        "ConfigMap/gateway-settings",
        "data.GATEWAY_ORCHESTRATOR_ADDRESS",
        "encoder:7410",
        "addresses",
        "orchestrator_address",
    ),
    (
        "NetworkPolicy/triton",
        "spec.ingress.+",
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 7440, "protocol": "TCP"}]},
        "edges",
        "source='client', target='triton', port=7440, protocol='TCP') is open",
    ),
    ("NetworkPolicy/shard", "spec.ingress.1", GONE, "edges", "'prometheus', target='shard'"),
    ("NetworkPolicy/default-deny", "", GONE, "edges", "target='neighbour', port=53"),
    (
        "StatefulSet/shard",
        "pod.containers.index.envFrom.token-settings",
        GONE,
        "access_tokens",
        "shard index: asks for no token where others do",
    ),
    (
        "Deployment/orchestrator",
        "pod.volumes.tokens.secret.optional",
        True,
        "access_tokens",
        "its tokens are not",
    ),
    (
        "PodDisruptionBudget/shard",
        "spec.selector.matchLabels",
        {"app.kubernetes.io/name": "shards"},
        "availability",
        "0 disruption budgets",
    ),
]
MERGED: list[Row] = [
    (
        "ConfigMap/orchestrator-settings",
        "data.ORCHESTRATOR_ENCODER_ADDRESS",
        "encoder:1",
        "merged",
        "not all of its services are in-process",
    ),
    (
        "ConfigMap/index-settings",
        "data.INDEX_STORE_PATH",
        "/store/shard",
        "merged",
        "the stores are not one a shard on its volume",
    ),
    ("StatefulSet/orchestrator", "spec.replicas", 2, "merged", "is opened by one process"),
    (
        "StatefulSet/orchestrator",
        "pod.terminationGracePeriodSeconds",
        60,
        "merged",
        "drains for 65.0 s, is given 60",
    ),
]
FULL: list[Row] = [
    ("ConfigMap/token-settings", "data", {}, "access_tokens", "no certificate and no token"),
    (
        "Deployment/encoder",
        "pod.containers.encoder.env",
        GONE,
        "certificates_of_triton",
        "encoder: calls Triton in plain text",
    ),
    (
        "Deployment/triton",
        "pod.containers.triton.args.+",
        "--grpc-address=0.0.0.0",
        "certificates_of_triton",
        "Triton listens beyond loopback",
    ),
    ("Certificate/shard", "spec.dnsNames", ["shard"], "certificates", "shard-certificate is not"),
    (
        "Certificate/orchestrator",
        "spec.dnsNames",
        ["orchestrator"],
        "certificates",
        "orchestrator-certificate is not for",
    ),
    (
        "Deployment/encoder",
        "pod.containers.encoder.livenessProbe",
        {"grpc": {"port": 7410, "service": "liveness"}},
        "probes",
        "no livenessProbe",
    ),
]


@pytest.mark.parametrize(
    ("overlay", "row"),
    [
        (overlay, row)
        for overlay, rows in (("gpu", GPU), ("merged", MERGED), ("full", FULL))
        for row in rows
    ],
    ids=lambda each: each if isinstance(each, str) else f"{each[3]} {each[4]}",
)
def test_a_policy_catches_each_fault(overlay: str, row: Row) -> None:
    """The overlay without the sabotage has no fault: tests/deploy/test_kubernetes.py."""
    resource, path, value, policy, words = row
    resources = rendered(overlay)
    put(resources, resource, path, value)

    found = faults(resources)

    assert any(each.startswith(f"{policy}: ") and words in each for each in found), found


@pytest.mark.parametrize(
    ("resource", "path", "value"),
    [
        ("Deployment/encoder", "pod.terminationGracePeriodSecond", 40),
        ("StatefulSet/shard", "spec.replicas", "2"),
        ("PodDisruptionBudget/shard", "apiVersion", "policy/v1beta1"),
    ],
)
def test_a_schema_catches_what_kubernetes_refuses(resource: str, path: str, value: object) -> None:
    """A field that is not known, one of another type, and an API that is gone."""
    resources = rendered("full")
    put(resources, resource, path, value)

    assert len(list(schema_faults(resources, latest_versions(1)[0]))) == 1


def put(resources: list[Resource], name: str, path: str, value: object) -> None:
    """Puts a value at a path of the resource of that kind and name, or takes out what is there."""
    # kustomize ends a ConfigMap's name in a hash.
    [whole] = [each for each in resources if _is_called(each, name)]
    if not path:
        resources.remove(whole)
        return
    *folders, last = path.replace("pod.", "spec.template.spec.", 1).split(".")
    place: Any = whole
    for folder in folders:
        place = place[_key(place, folder)]
    if last == "+":
        place.append(value)
    elif value is GONE:
        del place[_key(place, last)]
    else:
        place[_key(place, last)] = value


def _is_called(resource: Resource, name: str) -> bool:
    is_map = name.startswith("ConfigMap/")
    return named(resource).startswith(f"{name}-") if is_map else named(resource) == name


def _key(place: Any, folder: str) -> str | int:
    """Returns the key of a map, or the number of the list's entry of that name or number."""
    if isinstance(place, dict):
        return folder
    if folder.isdigit():
        return int(folder)
    names = [each.get("name") or each.get("configMapRef", {}).get("name") for each in place]
    [number] = [at for at, each in enumerate(names) if each == folder or f"{folder}-" in f"{each}"]
    return number
