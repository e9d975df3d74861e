"""The positive control of the policies: manifests with one thing wrong, each caught by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.deploy.policies import faults
from tests.support.deploy.rendered import Resource, of_kind, one, rendered
from tests.support.deploy.schemas import latest_versions, schema_faults
from tests.support.grid import sampled

Sabotage = Callable[[list[Resource]], None]


def pod(resources: list[Resource], kind: str, name: str) -> Any:
    """Returns the spec of a workload's pods."""
    return one(resources, kind, name)["spec"]["template"]["spec"]


def settings_map(resources: list[Resource], name: str) -> dict[str, str]:
    """Returns a map of settings."""
    (found,) = (
        each
        for each in of_kind(resources, "ConfigMap")
        if each["metadata"]["name"].startswith(name)
    )
    data: dict[str, str] = found["data"]
    return data


def runs_as_root(resources: list[Resource]) -> None:
    del pod(resources, "Deployment", "encoder")["securityContext"]["runAsNonRoot"]


def mounts_the_node(resources: list[Resource]) -> None:
    volumes = pod(resources, "Deployment", "triton")["volumes"]
    volumes.append({"name": "node", "hostPath": {"path": "/"}})


def keeps_capabilities(resources: list[Resource]) -> None:
    context = pod(resources, "StatefulSet", "shard")["containers"][1]["securityContext"]
    context["capabilities"] = {"drop": ["ALL"], "add": ["SYS_PTRACE"]}


def writes_to_its_root(resources: list[Resource]) -> None:
    context = pod(resources, "Deployment", "orchestrator")["containers"][0]["securityContext"]
    context["readOnlyRootFilesystem"] = False


def has_no_memory_limit(resources: list[Resource]) -> None:
    del pod(resources, "Deployment", "encoder")["initContainers"][0]["resources"]["limits"][
        "memory"
    ]


def takes_the_latest_image(resources: list[Resource]) -> None:
    pod(resources, "Deployment", "encoder")["containers"][0]["image"] = "tandem/service:latest"


def takes_a_triton_of_before_the_bulletin(resources: list[Resource]) -> None:
    (triton,) = pod(resources, "Deployment", "triton")["containers"]
    triton["image"] = "nvcr.io/nvidia/tritonserver:26.05-py3"


def has_a_token(resources: list[Resource]) -> None:
    pod(resources, "Deployment", "orchestrator")["automountServiceAccountToken"] = True


def has_service_links(resources: list[Resource]) -> None:
    del pod(resources, "Deployment", "encoder")["enableServiceLinks"]


def is_killed_while_draining(resources: list[Resource]) -> None:
    pod(resources, "StatefulSet", "shard")["terminationGracePeriodSeconds"] = 25


def misspells_a_setting(resources: list[Resource]) -> None:
    settings_map(resources, "encoder-settings")["ENCODER_GRACE_SECOND"] = "20"


def leaves_a_setting_out(resources: list[Resource]) -> None:
    del settings_map(resources, "rerank-settings")["RERANK_TRITON_ADDRESS"]


def counts_shards_otherwise(resources: list[Resource]) -> None:
    one(resources, "StatefulSet", "shard")["spec"]["replicas"] = 3


def swaps_two_shards(resources: list[Resource]) -> None:
    settings_map(resources, "orchestrator-settings")["ORCHESTRATOR_INDEX_ADDRESSES"] = (
        "shard-1.shard:7420,shard-0.shard:7420"
    )


def reads_the_store_read_only(resources: list[Resource]) -> None:
    rerank = pod(resources, "StatefulSet", "shard")["containers"][1]
    (mount,) = (each for each in rerank["volumeMounts"] if each["name"] == "store")
    mount["readOnly"] = True


def splits_the_process_namespace(resources: list[Resource]) -> None:
    del pod(resources, "StatefulSet", "shard")["shareProcessNamespace"]


def dies_with_what_stands_behind_it(resources: list[Resource]) -> None:
    del pod(resources, "Deployment", "encoder")["containers"][0]["livenessProbe"]["grpc"]["service"]


def is_never_asked_whether_it_is_ready(resources: list[Resource]) -> None:
    del pod(resources, "Deployment", "orchestrator")["containers"][0]["readinessProbe"]


def believes_triton(resources: list[Resource]) -> None:
    (triton,) = pod(resources, "Deployment", "triton")["containers"]
    triton["livenessProbe"]["grpc"]["port"] = 7440


def lets_models_be_loaded(resources: list[Resource]) -> None:
    (triton,) = pod(resources, "Deployment", "triton")["containers"]
    triton["args"] = [
        each.replace("model-control-mode=none", "model-control-mode=explicit")
        for each in triton["args"]
    ]


def names_another_port(resources: list[Resource]) -> None:
    one(resources, "Service", "encoder")["spec"]["ports"][0]["port"] = 7411


def stays_with_one_replica(resources: list[Resource]) -> None:
    one(resources, "Service", "encoder")["spec"]["clusterIP"] = "10.96.0.7"


def opens_triton(resources: list[Resource]) -> None:
    policy = one(resources, "NetworkPolicy", "triton")["spec"]
    policy["ingress"].append(
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 7440, "protocol": "TCP"}]}
    )


def closes_the_metrics(resources: list[Resource]) -> None:
    del one(resources, "NetworkPolicy", "shard")["spec"]["ingress"][1]


def allows_what_is_not_named(resources: list[Resource]) -> None:
    resources.remove(one(resources, "NetworkPolicy", "default-deny"))


def budgets_nothing(resources: list[Resource]) -> None:
    budget = one(resources, "PodDisruptionBudget", "shard")["spec"]
    budget["selector"]["matchLabels"]["app.kubernetes.io/name"] = "shards"


def asks_one_of_two_for_tokens(resources: list[Resource]) -> None:
    sources = pod(resources, "StatefulSet", "shard")["containers"][0]["envFrom"]
    sources[:] = [
        each for each in sources if not each["configMapRef"]["name"].startswith("token-settings")
    ]


def starts_without_its_tokens(resources: list[Resource]) -> None:
    (volume,) = (
        each
        for each in pod(resources, "Deployment", "orchestrator")["volumes"]
        if each["name"] == "tokens"
    )
    volume["secret"]["optional"] = True


def asks_the_gateway_by_grpc(resources: list[Resource]) -> None:
    (gateway,) = pod(resources, "Deployment", "gateway")["containers"]
    gateway["livenessProbe"] = {"grpc": {"port": 7450, "service": "liveness"}}


def calls_another_orchestrator(resources: list[Resource]) -> None:
    settings_map(resources, "gateway-settings")["GATEWAY_ORCHESTRATOR_ADDRESS"] = "encoder:7410"


def leaves_balancing_to_browsers(resources: list[Resource]) -> None:
    one(resources, "Service", "gateway")["spec"]["clusterIP"] = "None"


def lets_the_gateway_pass_by(resources: list[Resource]) -> None:
    policy = one(resources, "NetworkPolicy", "gateway")["spec"]
    shard = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "shard"}}}
    policy["egress"].append({"to": [shard], "ports": [{"port": 7420}]})
    one(resources, "NetworkPolicy", "shard")["spec"]["ingress"][0]["from"].append(
        {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway"}}}
    )


def asks_for_tokens_behind_the_gateway_alone(resources: list[Resource]) -> None:
    sources = pod(resources, "Deployment", "gateway")["containers"][0]["envFrom"]
    sources[:] = [
        each for each in sources if not each["configMapRef"]["name"].startswith("token-settings")
    ]


SABOTAGES: list[tuple[Sabotage, str]] = [
    (runs_as_root, "pod_security: Deployment/encoder: may run as root"),
    (mounts_the_node, "pod_security: Deployment/triton: volume node"),
    (keeps_capabilities, "pod_security: StatefulSet/shard rerank: keeps capabilities"),
    (writes_to_its_root, "beyond_pod_security: Deployment/orchestrator orchestrator: its root"),
    (has_no_memory_limit, "beyond_pod_security: Deployment/encoder models: no memory in its lim"),
    (takes_the_latest_image, "beyond_pod_security: Deployment/encoder encoder: image"),
    (takes_a_triton_of_before_the_bulletin, "triton: Deployment/triton triton: nvcr.io"),
    (has_a_token, "tokens: Deployment/orchestrator: token mounted is True"),
    (has_service_links, "beyond_pod_security: Deployment/encoder: service links"),
    (is_killed_while_draining, "grace: StatefulSet/shard index: drains for 25.0 s"),
    (misspells_a_setting, "settings: Deployment/encoder encoder: ENCODER_GRACE_SECOND is not kn"),
    (leaves_a_setting_out, "settings: StatefulSet/shard rerank: RERANK_TRITON_ADDRESS is not set"),
    (counts_shards_otherwise, "shards: StatefulSet/shard: shard counts are not 3"),
    (swaps_two_shards, "shards: Deployment/orchestrator orchestrator: index addresses"),
    (reads_the_store_read_only, "shards: StatefulSet/shard rerank: LMDB tracks no readers"),
    (splits_the_process_namespace, "shards: StatefulSet/shard: LMDB needs one process namespace"),
    (dies_with_what_stands_behind_it, "probes: Deployment/encoder encoder: livenessProbe asks"),
    (
        is_never_asked_whether_it_is_ready,
        "probes: Deployment/orchestrator orchestrator: no readinessProbe",
    ),
    (believes_triton, "triton: Deployment/triton triton: whether it lives"),
    (lets_models_be_loaded, "triton: Deployment/triton triton: without"),
    (names_another_port, "ports: Service/encoder: grpc is not a port"),
    (stays_with_one_replica, "headless: Service/encoder"),
    (opens_triton, "edges: Edge(source='client', target='triton', port=7440"),
    (closes_the_metrics, "edges: Edge(source='prometheus', target='shard', port=7520"),
    (allows_what_is_not_named, "edges: Edge(source='client', target='neighbour', port=53"),
    (asks_one_of_two_for_tokens, "access_tokens: StatefulSet/shard index: asks for no token wh"),
    (starts_without_its_tokens, "access_tokens: Deployment/orchestrator orchestrator: its tok"),
    (asks_the_gateway_by_grpc, "probes: Deployment/gateway gateway: no livenessProbe"),
    (calls_another_orchestrator, "addresses: Deployment/gateway gateway: orchestrator_address"),
    (leaves_balancing_to_browsers, "headless: Service/gateway: is headless"),
    (lets_the_gateway_pass_by, "edges: Edge(source='gateway', target='shard', port=7420"),
    (asks_for_tokens_behind_the_gateway_alone, "access_tokens: Deployment/gateway gateway: asks"),
    (budgets_nothing, "availability: StatefulSet/shard: 0 disruption budgets"),
]


@pytest.mark.parametrize(
    ("sabotage", "fault"), SABOTAGES, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_policy_catches_each_fault(sabotage: Sabotage, fault: str) -> None:
    """The overlay without the sabotage has no fault: tests/deploy/test_kubernetes.py."""
    resources = rendered("gpu")
    sabotage(resources)

    found = faults(resources)

    assert any(each.startswith(fault) for each in found), found


def merges_no_encoder(resources: list[Resource]) -> None:
    settings_map(resources, "orchestrator-settings")["ORCHESTRATOR_ENCODER_ADDRESS"] = "encoder:1"


def keeps_all_shards_in_one_store(resources: list[Resource]) -> None:
    settings_map(resources, "index-settings")["INDEX_STORE_PATH"] = "/store/shard"


def opens_each_store_twice(resources: list[Resource]) -> None:
    one(resources, "StatefulSet", "orchestrator")["spec"]["replicas"] = 2


def ends_merged_pods_early(resources: list[Resource]) -> None:
    pod(resources, "StatefulSet", "orchestrator")["terminationGracePeriodSeconds"] = 60


def has_room_for_one_shard(resources: list[Resource]) -> None:
    (claim,) = one(resources, "StatefulSet", "orchestrator")["spec"]["volumeClaimTemplates"]
    claim["spec"]["resources"]["requests"]["storage"] = "40Gi"


def names_no_port_for_http(resources: list[Resource]) -> None:
    (container,) = pod(resources, "StatefulSet", "orchestrator")["containers"]
    container["ports"] = [each for each in container["ports"] if each["name"] != "http"]


@pytest.mark.parametrize(
    ("sabotage", "fault"),
    [
        (merges_no_encoder, "not all of its services are in-process"),
        (keeps_all_shards_in_one_store, "the stores are not one a shard on its volume"),
        (opens_each_store_twice, "a store is opened by one process"),
        (ends_merged_pods_early, "drains for 65.0 s, is given 60"),
        (has_room_for_one_shard, "the stores may outgrow their volume of 40Gi"),
        (names_no_port_for_http, "binds {"),
    ],
)
def test_a_policy_catches_each_fault_of_merged_services(sabotage: Sabotage, fault: str) -> None:
    """The same for the overlay that has all services in one pod."""
    resources = rendered("merged")
    sabotage(resources)

    found = [each for each in faults(resources) if each.startswith("merged: ")]

    assert any(fault in each for each in found), found


def has_a_certificate_of_another_name(resources: list[Resource]) -> None:
    one(resources, "Certificate", "shard")["spec"]["dnsNames"] = ["shard"]


def has_a_certificate_for_its_own_namespace(resources: list[Resource]) -> None:
    one(resources, "Certificate", "orchestrator")["spec"]["dnsNames"] = ["orchestrator"]


def asks_by_grpc_in_spite_of_tls(resources: list[Resource]) -> None:
    (encoder,) = pod(resources, "Deployment", "encoder")["containers"]
    encoder["livenessProbe"] = {"grpc": {"port": 7410, "service": "liveness"}}


def calls_triton_in_plain_text(resources: list[Resource]) -> None:
    (encoder,) = pod(resources, "Deployment", "encoder")["containers"]
    del encoder["env"]


def lets_triton_listen_to_all(resources: list[Resource]) -> None:
    (triton,) = pod(resources, "Deployment", "triton")["containers"]
    place = triton["args"].index("--grpc-address=127.0.0.1")
    triton["args"][place] = "--grpc-address=0.0.0.0"


def asks_for_nothing_at_the_door(resources: list[Resource]) -> None:
    settings_map(resources, "token-settings").clear()


@pytest.mark.parametrize(
    ("sabotage", "fault"),
    [
        (
            asks_for_nothing_at_the_door,
            "access_tokens: Deployment/orchestrator orchestrator: asks for no certificate and no",
        ),
        (calls_triton_in_plain_text, "certificates_of_triton: Deployment/encoder encoder: calls"),
        (lets_triton_listen_to_all, "certificates_of_triton: Deployment/triton: Triton listens"),
        (has_a_certificate_of_another_name, "certificates: StatefulSet/shard index: shard-certif"),
        (
            has_a_certificate_for_its_own_namespace,
            "certificates: Deployment/orchestrator orchestrator: orchestrator-certificate is not",
        ),
        (asks_by_grpc_in_spite_of_tls, "probes: Deployment/encoder encoder: no livenessProbe"),
    ],
)
def test_a_policy_catches_each_fault_of_tls(sabotage: Sabotage, fault: str) -> None:
    resources = rendered("full")
    sabotage(resources)

    found = faults(resources)

    assert any(each.startswith(fault) for each in found), found


def misspells_a_field(resources: list[Resource]) -> None:
    pod(resources, "Deployment", "encoder")["terminationGracePeriodSecond"] = 40


def writes_a_number_as_text(resources: list[Resource]) -> None:
    one(resources, "StatefulSet", "shard")["spec"]["replicas"] = "2"


def takes_an_api_that_is_gone(resources: list[Resource]) -> None:
    one(resources, "PodDisruptionBudget", "shard")["apiVersion"] = "policy/v1beta1"


def misspells_an_extension(resources: list[Resource]) -> None:
    one(resources, "Certificate", "encoder")["spec"]["secret"] = "encoder-certificate"


@pytest.mark.parametrize(
    "sabotage",
    [misspells_a_field, writes_a_number_as_text, takes_an_api_that_is_gone, misspells_an_extension],
)
@pytest.mark.parametrize("version", sampled(latest_versions(3)))
def test_a_schema_catches_what_kubernetes_refuses(sabotage: Sabotage, version: str) -> None:
    """One fault for one thing wrong, in each version."""
    resources = rendered("full")
    sabotage(resources)

    assert len(list(schema_faults(resources, version))) == 1
