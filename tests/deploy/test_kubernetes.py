"""deploy/kubernetes: every overlay builds, is what Kubernetes takes, and keeps our policies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem import __version__
from tandem.chassis.telemetry.metrics import REGISTRY
from tests.support.deploy.merged_policies import EMBEDDED
from tests.support.deploy.pod_policies import pods
from tests.support.deploy.policies import faults
from tests.support.deploy.rendered import KUBERNETES, OVERLAYS, of_kind, one, parsed, rendered
from tests.support.deploy.schemas import latest_versions, schema_faults
from tests.support.deploy.service_policies import SETTINGS, settings_of
from tests.support.deploy.workloads import service_containers, workloads

# Of Triton 2.51 too (its library names it), though only its /metrics could say so of a release.
TRITON_METRICS = {"nv_inference_pending_request_count"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_valid_and_keeps_every_policy(overlay: str) -> None:
    oldest, _, newest = latest_versions(3)

    # A field that comes or goes between them is in the oldest or the newest.
    for version in (oldest, newest):
        assert list(schema_faults(rendered(overlay), version)) == []
    assert faults(rendered(overlay)) == []


def test_every_component_is_in_some_overlay() -> None:
    used = {
        Path(component).name
        for overlay in OVERLAYS
        for component in yaml.safe_load(
            (KUBERNETES / "overlays" / overlay / "kustomization.yaml").read_text()
        ).get("components", [])
    }

    assert used == {path.name for path in (KUBERNETES / "components").iterdir()}


def test_every_service_is_in_every_overlay() -> None:
    """A policy over no container would find no fault."""
    for overlay in OVERLAYS:
        for module in SETTINGS:
            found = service_containers(rendered(overlay), module)
            assert found or service_containers(rendered(overlay), EMBEDDED), f"{module}, {overlay}"


def test_callers_need_tokens_except_on_a_laptop() -> None:
    """Wherever a service that callers reach runs, the canary's pods too."""
    for overlay in OVERLAYS:
        for module in ("gateway_svc", "orchestrator_svc", "index_svc", EMBEDDED):
            for container in service_containers(rendered(overlay), module):
                told = container.environment(rendered(overlay)).get("ACCESS_TOKEN_FILE")
                wanted = None if overlay == "laptop" else "/tokens/tokens.toml"
                assert told == wanted, f"{overlay}: {container.name}"


def test_our_images_are_of_this_release() -> None:
    tags = {
        container.spec["image"]
        for overlay in OVERLAYS
        for workload in workloads(rendered(overlay))
        for container in workload.containers()
        if container.spec["image"].startswith("tandem/") and "canary" not in workload.name
    }

    assert tags == {
        f"tandem/{name}:{__version__}"
        for name in ("service", "models", "next-models", "triton-cpu")
    }


def test_autoscalers_use_metrics_that_exist() -> None:
    ours = {family.name for family in REGISTRY.collect()}
    adapter = (KUBERNETES / "components" / "autoscaling" / "prometheus-adapter.yaml").read_text()
    named = {
        metric["pods"]["metric"]["name"]
        for scaler in of_kind(rendered("gpu"), "HorizontalPodAutoscaler")
        for metric in scaler["spec"]["metrics"]
        if metric["type"] == "Pods"
    }

    assert named == {"tandem_rpc_inflight_count"} | TRITON_METRICS
    assert named - ours == TRITON_METRICS
    assert all(name in adapter for name in named)


def test_a_service_grows_before_it_refuses() -> None:
    resources = rendered("gpu")
    for name in ("gateway", "orchestrator", "encoder"):
        (container, *_) = service_containers(resources, f"{name}_svc")
        metric = one(resources, "HorizontalPodAutoscaler", name)["spec"]["metrics"][0]["pods"]

        admitted = settings_of(container, resources).max_inflight_count

        assert int(metric["target"]["averageValue"]) == admitted // 4


def test_a_service_has_places_for_all_that_an_orchestrator_admits() -> None:
    """Or a caller that the orchestrator makes room for would be refused behind it."""
    resources = rendered("gpu")

    def settings_in(module: str) -> Any:
        return settings_of(service_containers(resources, module)[0], resources)

    limits = settings_in("orchestrator_svc").admission_limits()
    admitted = 1.5 * (limits.max_inflight_count + limits.max_stream_message_count)
    for module in ("encoder_svc", "index_svc", "rerank_svc"):
        assert settings_in(module).max_inflight_count >= admitted, module


def test_triton_requests_its_share_of_a_gpu() -> None:
    for overlay, resource in [
        ("gpu", "nvidia.com/gpu"),
        ("gpu-mig", "nvidia.com/mig-1g.10gb"),
        ("gpu-time-slicing", "nvidia.com/gpu.shared"),
        ("laptop", None),
    ]:
        (limits,) = (
            container.spec["resources"]["limits"]
            for workload in workloads(rendered(overlay))
            for container in workload.containers()
            if container.spec.get("command") == ["tritonserver"]
        )
        devices = {key: value for key, value in limits.items() if "/" in key}
        assert devices == ({resource: "1"} if resource else {}), overlay


def test_manifests_applied_by_hand_are_valid() -> None:
    """The time slices' map is the GPU operator's, in a namespace that is not ours."""
    path = KUBERNETES / "components" / "gpu-time-slicing" / "time-slicing.yaml"
    (map_,) = parsed(path.read_text())

    assert list(schema_faults([map_], latest_versions(1)[0])) == []
    sharing = yaml.safe_load(map_["data"]["any"])["sharing"]["timeSlicing"]
    assert sharing["renameByDefault"] is True  # or the overlay's gpu.shared does not exist


def test_the_restore_job_is_valid() -> None:
    resources = rendered("full")
    (job,) = parsed((KUBERNETES / "components" / "backup" / "restore.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (shard,) = (each for each in workloads(resources) if each.name == "StatefulSet/shard")

    assert list(schema_faults([job], latest_versions(1)[0])) == []
    assert list(pods([job])) == []
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert claims == {f"{name}-shard-0" for name in shard.claims()}
    assert pod["securityContext"]["runAsUser"] == shard.pod["securityContext"]["runAsUser"]


def test_a_changed_setting_rolls_the_pods() -> None:
    names = [each["metadata"]["name"] for each in of_kind(rendered("laptop"), "ConfigMap")]

    assert names
    assert all(re.search(r"-[a-z0-9]{10}$", name) for name in names)
