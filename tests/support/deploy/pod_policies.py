"""What every pod is held to: Pod Security `restricted`, and what we ask beyond it.

Each policy yields a line for each thing that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tests.support.deploy.rendered import Resource, named, of_kind
from tests.support.deploy.workloads import Container, selects, workloads

# Of the kinds that `restricted` allows, those that we use.
_VOLUME_KINDS = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
# It calls the API server, and nothing calls it.
_WITH_TOKEN = "CronJob/backup"
_PINNED = re.compile(r".+:v?\d+(\.\d+)+[\w.-]*|.+@sha256:[0-9a-f]{64}")


def pod_security(resources: Sequence[Resource]) -> Iterator[str]:
    """The level `restricted`, all of it."""
    for workload in workloads(resources):
        pod, context = workload.pod, workload.pod.get("securityContext", {})
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.get(field):
                yield f"{workload.name}: {field}"
        for volume in pod.get("volumes", []):
            if kinds := volume.keys() - {"name"} - _VOLUME_KINDS:
                yield f"{workload.name}: volume {volume['name']} is of kind {kinds}"
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{workload.name}: no seccomp profile"
        if context.get("runAsNonRoot") is not True:
            yield f"{workload.name}: may run as root"
        for field in ("sysctls", "appArmorProfile", "seLinuxOptions", "windowsOptions"):
            if field in context:
                yield f"{workload.name}: sets {field}"
        for container in workload.containers():
            yield from _container_security(container)


def _container_security(container: Container) -> Iterator[str]:
    context = container.spec.get("securityContext", {})
    if context.get("privileged"):
        yield f"{container.name}: privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{container.name}: may gain privileges"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{container.name}: keeps capabilities"
    if context.get("runAsNonRoot") is False or context.get("runAsUser") == 0:
        yield f"{container.name}: runs as root"
    if context.get("procMount", "Default") != "Default" or "seccompProfile" in context:
        yield f"{container.name}: loosens its pod's profile"
    if any("hostPort" in port for port in container.spec.get("ports", [])):
        yield f"{container.name}: takes a port of its node"


def beyond_pod_security(resources: Sequence[Resource]) -> Iterator[str]:
    """Read-only roots, no root user by number, pinned images, and bounds on what is used."""
    for workload in workloads(resources):
        if not workload.pod["securityContext"].get("runAsUser"):
            yield f"{workload.name}: no user by number"
        if workload.pod.get("enableServiceLinks") is not False:
            yield f"{workload.name}: service links would set variables that services refuse"
        for container in workload.containers():
            spec = container.spec
            if spec.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
                yield f"{container.name}: its root can be written to"
            if not _PINNED.fullmatch(spec["image"]):
                yield f"{container.name}: image {spec['image']} is not pinned"
            for bound in ("requests", "limits"):
                for what in ("cpu", "memory"):
                    if what not in spec.get("resources", {}).get(bound, {}):
                        yield f"{container.name}: no {what} in its {bound}"
        for volume in workload.pod.get("volumes", []):
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{workload.name}: volume {volume['name']} has no limit"


def tokens(resources: Sequence[Resource]) -> Iterator[str]:
    """A service account of its own for each workload, and a token for the backup alone."""
    accounts = {each["metadata"]["name"]: each for each in of_kind(resources, "ServiceAccount")}
    users: dict[str, str] = {}
    for workload in workloads(resources):
        name = workload.pod.get("serviceAccountName", "default")
        if name not in accounts or users.setdefault(name, workload.name) != workload.name:
            yield f"{workload.name}: no service account of its own"
        elif accounts[name].get("automountServiceAccountToken") is not False:
            yield f"{workload.name}: its service account hands out tokens"
        is_mounted = workload.pod.get("automountServiceAccountToken")
        if is_mounted is not (workload.name == _WITH_TOKEN):
            yield f"{workload.name}: token mounted is {is_mounted}"


def availability(resources: Sequence[Resource]) -> Iterator[str]:
    """A disruption budget and a spread over nodes and zones for all that stays."""
    budgets = of_kind(resources, "PodDisruptionBudget")
    for workload in workloads(resources):
        if workload.ends:
            continue
        hit = [each for each in budgets if selects(each["spec"]["selector"], workload.labels)]
        if len(hit) != 1:
            yield f"{workload.name}: {len(hit)} disruption budgets"
        spreads = workload.pod.get("topologySpreadConstraints", [])
        keys = {
            each["topologyKey"]
            for each in spreads
            if selects(each["labelSelector"], workload.labels)
        }
        if keys != {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}:
            yield f"{workload.name}: is spread over {keys}"


def selectors(resources: Sequence[Resource]) -> Iterator[str]:
    """Whatever selects pods selects some, and no two workloads select each other's."""
    every = [each for each in workloads(resources) if not each.ends]
    for resource in of_kind(resources, "Service", "PodDisruptionBudget"):
        selector = resource["spec"]["selector"]
        selector = selector if resource["kind"] != "Service" else {"matchLabels": selector}
        if not any(selects(selector, workload.labels) for workload in every):
            yield f"{named(resource)}: selects nothing"
    for workload in every:
        mine = [
            each.name
            for each in every
            if selects(workload.resource["spec"]["selector"], each.labels)
        ]
        if mine != [workload.name]:
            yield f"{workload.name}: selects {mine}"


def scalers(resources: Sequence[Resource]) -> Iterator[str]:
    """An autoscaler's target is there and leaves the number of its pods to it."""
    for scaler in of_kind(resources, "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        found = [each for each in resources if named(each) == f"{target['kind']}/{target['name']}"]
        if len(found) != 1:
            yield f"{named(scaler)}: its target is not there"
        elif "replicas" in found[0]["spec"]:
            yield f"{named(scaler)}: its target sets a number of its own"


def namespaces(resources: Sequence[Resource]) -> Iterator[str]:
    """One namespace, which enforces `restricted`, and everything is in it."""
    (namespace,) = of_kind(resources, "Namespace")
    if namespace["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
        yield f"{named(namespace)}: does not enforce restricted"
    for resource in resources:
        if resource is not namespace and resource["metadata"].get("namespace") != "tandem":
            yield f"{named(resource)}: is not in the namespace"
