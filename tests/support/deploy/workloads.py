"""Pods, as the workloads of a rendered overlay will make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.deploy.rendered import Resource, named, of_kind

_KINDS = ("Deployment", "StatefulSet", "CronJob", "Job")
_POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a workload's pods."""

    workload: Workload
    spec: Resource
    is_init: bool

    @property
    def name(self) -> str:
        """Workload and container, to tell of."""
        return f"{self.workload.name} {self.spec['name']}"

    @property
    def stays(self) -> bool:
        """Whether it runs as long as its pod serves."""
        if self.is_init:
            return self.spec.get("restartPolicy") == "Always"
        return not self.workload.ends

    @property
    def module(self) -> str | None:
        """The service that it runs, such as encoder_svc, if it is one of ours."""
        args = self.spec.get("args", [])
        return args[1] if args[:1] == ["-m"] else None

    @property
    def ports(self) -> dict[str, int]:
        """Its ports by name."""
        return {port["name"]: port["containerPort"] for port in self.spec.get("ports", [])}

    def environment(self, resources: Sequence[Resource], pod_index: int = 0) -> dict[str, str]:
        """Returns its environment; raises KeyError where a map that it names is not there."""
        fields = {_POD_INDEX: str(pod_index)}
        maps = {each["metadata"]["name"]: each["data"] for each in of_kind(resources, "ConfigMap")}
        values: dict[str, str] = {}
        for source in self.spec.get("envFrom", []):
            if "configMapRef" in source:
                values |= maps[source["configMapRef"]["name"]]
        for variable in self.spec.get("env", []):
            if "value" in variable:
                values[variable["name"]] = variable["value"]
            elif secret := variable["valueFrom"].get("secretKeyRef"):
                values[variable["name"]] = f"the {secret['key']} of Secret/{secret['name']}"
            else:
                values[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        return values

    def mount(self, volume: str) -> Mapping[str, Any] | None:
        """Returns where and how the volume is mounted, if it is."""
        mounts = self.spec.get("volumeMounts", [])
        return next((mount for mount in mounts if mount["name"] == volume), None)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment, StatefulSet, CronJob or Job."""

    resource: Resource

    @property
    def name(self) -> str:
        """Kind and name, to tell of."""
        return named(self.resource)

    @property
    def ends(self) -> bool:
        """Whether its pods end by themselves."""
        return self.resource["kind"] in ("CronJob", "Job")

    @property
    def template(self) -> Resource:
        """What its pods are made from."""
        spec: Resource = self.resource["spec"]
        return dict(spec.get("jobTemplate", {"spec": spec})["spec"]["template"])

    @property
    def pod(self) -> Resource:
        """Its pods' spec."""
        return dict(self.template["spec"])

    @property
    def labels(self) -> Mapping[str, str]:
        """Its pods' labels."""
        return dict(self.template["metadata"]["labels"])

    def containers(self) -> Iterator[Container]:
        """Yields every container, those that only prepare the others too."""
        for spec in self.pod.get("initContainers", []):
            yield Container(self, spec, is_init=True)
        for spec in self.pod["containers"]:
            yield Container(self, spec, is_init=False)

    def claims(self) -> Mapping[str, Resource]:
        """Returns the claims that each pod gets for itself, by name."""
        claims = self.resource["spec"].get("volumeClaimTemplates", [])
        return {claim["metadata"]["name"]: claim["spec"] for claim in claims}


def workloads(resources: Sequence[Resource]) -> list[Workload]:
    """Returns every workload."""
    return [Workload(resource) for resource in of_kind(resources, *_KINDS)]


def service_containers(resources: Sequence[Resource], module: str) -> list[Container]:
    """Returns the containers that run a service of ours."""
    return [
        container
        for workload in workloads(resources)
        for container in workload.containers()
        if container.module == module
    ]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Says whether a label selector matches; an empty one matches all."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or []:
        if expression["operator"] != "In":
            raise NotImplementedError(expression["operator"])
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    unknown = selector.keys() - {"matchLabels", "matchExpressions"}
    if unknown:
        raise NotImplementedError(f"{unknown} in a selector")
    return True
