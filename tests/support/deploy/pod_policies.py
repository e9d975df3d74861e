"""What every pod is held to: Pod Security `restricted`, and what we ask beyond it.

Each policy yields a line for each thing that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.support.deploy.rendered import Resource, named, of_kind
from tests.support.deploy.workloads import selects, workloads

# Of the kinds that `restricted` allows, those that we use.
_VOLUME_KINDS = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
# It calls the API server, and nothing calls it.
_WITH_TOKEN = "CronJob/backup"
_PINNED = re.compile(r".+:v?\d+(\.\d+)+[\w.-]*|.+@sha256:[0-9a-f]{64}")

Rule = tuple[str, tuple[object, ...], str]
"""Where in a spec, what may be there (None is nothing), and what is wrong otherwise."""

POD: Final[list[Rule]] = [
    ("hostNetwork", (None, False), "uses its node's network"),
    ("hostPID", (None, False), "sees its node's processes"),
    ("hostIPC", (None, False), "sees its node's memory"),
    ("securityContext.seccompProfile.type", ("RuntimeDefault",), "no seccomp profile"),
    ("securityContext.runAsNonRoot", (True,), "may run as root"),
    ("securityContext.sysctls", (None,), "sets sysctls"),
    # Service links would set variables that services refuse.
    ("enableServiceLinks", (False,), "has service links"),
]
CONTAINER: Final[list[Rule]] = [
    ("securityContext.privileged", (None, False), "is privileged"),
    ("securityContext.allowPrivilegeEscalation", (False,), "may gain privileges"),
    ("securityContext.capabilities", ({"drop": ["ALL"]},), "keeps capabilities"),
    ("securityContext.runAsNonRoot", (None, True), "may run as root"),
    ("securityContext.procMount", (None,), "loosens its pod's profile"),
    ("securityContext.seccompProfile", (None,), "loosens its pod's profile"),
    ("securityContext.readOnlyRootFilesystem", (True,), "its root can be written to"),
]


def pods(resources: Sequence[Resource]) -> Iterator[str]:
    """The level `restricted`; read-only roots, users by number, pinned images, bounded use."""
    for workload in workloads(resources):
        yield from _broken(POD, workload.name, workload.pod)
        if not workload.pod["securityContext"].get("runAsUser"):
            yield f"{workload.name}: no user by number"
        for volume in workload.pod.get("volumes", []):
            if kinds := volume.keys() - {"name"} - _VOLUME_KINDS:
                yield f"{workload.name}: volume {volume['name']} is of kind {kinds}"
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{workload.name}: volume {volume['name']} has no limit"
        for container in workload.containers():
            spec = container.spec
            yield from _broken(CONTAINER, container.name, spec)
            if spec.get("securityContext", {}).get("runAsUser") == 0:
                yield f"{container.name}: runs as root"
            if any("hostPort" in port for port in spec.get("ports", [])):
                yield f"{container.name}: takes a port of its node"
            if not _PINNED.fullmatch(spec["image"]):
                yield f"{container.name}: image {spec['image']} is not pinned"
            for bound in ("requests", "limits"):
                for what in ("cpu", "memory"):
                    if what not in spec.get("resources", {}).get(bound, {}):
                        yield f"{container.name}: no {what} in its {bound}"


def _broken(rules: Sequence[Rule], name: str, spec: Resource) -> Iterator[str]:
    for path, allowed, fault in rules:
        found: Any = spec
        for key in path.split("."):
            found = (found or {}).get(key)
        if found not in allowed:
            yield f"{name}: {fault}"


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


def namespaces(resources: Sequence[Resource]) -> Iterator[str]:
    """One namespace, which enforces `restricted`, and everything is in it."""
    (namespace,) = of_kind(resources, "Namespace")
    if namespace["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
        yield f"{named(namespace)}: does not enforce restricted"
    for resource in resources:
        if resource is not namespace and resource["metadata"].get("namespace") != "tandem":
            yield f"{named(resource)}: is not in the namespace"
