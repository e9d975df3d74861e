"""Runs the pods of an overlay as a kubelet does: volumes, init containers, sidecars, probes."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.deploy.rendered import Resource, of_kind
from tests.support.deploy.workloads import Container, Workload, selects, workloads
from tests.support.images.containers import ContainerPlan, Containers, Mount

_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_READY_SECONDS = 180.0
_UNITS = {"m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a workload."""

    workload: Workload
    index: int

    @property
    def name(self) -> str:
        """Its name, as a StatefulSet gives it."""
        return f"{self.workload.resource['metadata']['name']}-{self.index}"

    def container_name(self, container: Container) -> str:
        """Returns the name by which `Containers` knows one of its containers."""
        return f"{self.name}.{container.spec['name']}"


def pods_of(resources: Sequence[Resource]) -> list[Pod]:
    """Returns the pods of what stays."""
    return [
        Pod(workload, index)
        for workload in workloads(resources)
        if not workload.ends
        for index in range(workload.resource["spec"]["replicas"])
    ]


def names_of(pod: Pod, resources: Sequence[Resource]) -> list[str]:
    """Returns the names by which others find the pod, as the cluster's DNS has them.

    A pod with a name of its own has no other: of two addresses that share one name in /etc/hosts,
    gRPC's resolver gives both to whoever asks for any name of either.
    """
    if governing := pod.workload.resource["spec"].get("serviceName"):
        own = [f"{pod.name}.{governing}"]
        return own if pod.workload.resource["spec"]["replicas"] > 1 else [*own, governing]
    return [
        service["metadata"]["name"]
        for service in of_kind(resources, "Service")
        if selects({"matchLabels": service["spec"]["selector"]}, pod.workload.labels)
    ]


class PodRunner:
    """Starts the pods of rendered resources."""

    def __init__(
        self,
        containers: Containers,
        resources: Sequence[Resource],
        folder: Path,
        secrets: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Volumes go to `folder`; `secrets` has the texts of each Secret by file name."""
        self._containers = containers
        self._resources = resources
        self._folder = folder
        self._secrets = secrets

    def start(self, pod: Pod) -> None:
        """Prepares a pod and starts its containers, in their order."""
        volumes = self._volumes(pod)
        first: str | None = None
        for container in pod.workload.containers():
            plan = self._plan(pod, container, volumes, first)
            if not container.stays:
                self._containers.run(plan)
                continue
            self._containers.start(plan)
            if pod.workload.pod.get("shareProcessNamespace"):
                self._containers.wait_until_running(plan.name)
                first = first or plan.name
            if container.is_init:
                self._wait_for(pod, container, ["startupProbe"])

    def wait_until_ready(self, pod: Pod) -> None:
        """Returns when every probe of every container succeeds."""
        for container in pod.workload.containers():
            if container.stays:
                self._wait_for(pod, container, _PROBES)

    def stop(self, pod: Pod) -> dict[str, int]:
        """Ends a pod within its time and returns the exit status of each container."""
        seconds = pod.workload.pod["terminationGracePeriodSeconds"]
        names = [pod.container_name(each) for each in pod.workload.containers() if each.stays]
        return {name: self._containers.stop(name, seconds) for name in reversed(names)}

    def _plan(
        self, pod: Pod, container: Container, volumes: Mapping[str, Mount], first: str | None
    ) -> ContainerPlan:
        spec, context = container.spec, pod.workload.pod["securityContext"]
        limits = spec["resources"]["limits"]
        return ContainerPlan(
            name=pod.container_name(container),
            image=spec["image"],
            host=pod.name,
            entrypoint=spec.get("command"),
            command=spec.get("args"),
            environment=container.environment(self._resources, pod.index),
            user=(context["runAsUser"], context["runAsGroup"]),
            groups=[context["fsGroup"]],
            mounts=[
                Mount(
                    mount["mountPath"],
                    volumes[mount["name"]].source,
                    is_writable=not mount.get("readOnly", False),
                    size_bytes=volumes[mount["name"]].size_bytes,
                )
                for mount in spec.get("volumeMounts", [])
            ],
            memory_bytes=int(quantity(limits["memory"])),
            cpu_count=quantity(limits["cpu"]),
            processes_of=first,
        )

    def _volumes(self, pod: Pod) -> dict[str, Mount]:
        group = pod.workload.pod["securityContext"]["fsGroup"]
        volumes = {name: self._made(pod, name, 0o2775, group) for name in pod.workload.claims()}
        for volume in pod.workload.pod.get("volumes", []):
            name = volume["name"]
            if volume.get("emptyDir", {}).get("medium") == "Memory":
                size = int(quantity(volume["emptyDir"]["sizeLimit"]))
                volumes[name] = Mount("", None, size_bytes=size)
                continue
            volumes[name] = self._made(pod, name, 0o2777, group)
            folder = volumes[name].source
            assert folder is not None
            if "secret" in volume:
                for file_name, text in self._secrets[volume["secret"]["secretName"]].items():
                    (folder / file_name).write_text(text)
                    os.chown(folder / file_name, 0, group)
                    (folder / file_name).chmod(volume["secret"]["defaultMode"])
            else:
                assert "emptyDir" in volume, volume
        return volumes

    def _made(self, pod: Pod, name: str, mode: int, group: int) -> Mount:
        folder = self._folder / pod.name / name
        folder.mkdir(parents=True)
        os.chown(folder, 0, group)
        folder.chmod(mode)
        return Mount("", folder)

    def _wait_for(self, pod: Pod, container: Container, probes: Sequence[str]) -> None:
        address, name = self._containers.addresses[pod.name], pod.container_name(container)
        for probe in probes:
            if spec := container.spec.get(probe):
                succeeds = partial(_succeeds, spec, address)
                self._containers.wait_until(succeeds, name, _READY_SECONDS)


def quantity(text: str | float) -> float:
    """Returns the number that Kubernetes writes as 500m or 2Gi."""
    for unit, factor in _UNITS.items():
        if str(text).endswith(unit):
            return float(str(text).removesuffix(unit)) * factor
    return float(text)


def _succeeds(probe: Resource, address: str) -> bool:
    seconds = float(probe.get("timeoutSeconds", 1))
    if "httpGet" in probe:
        url = f"http://{address}:{probe['httpGet']['port']}{probe['httpGet']['path']}"
        try:
            with urllib.request.urlopen(url, timeout=seconds) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
    request = health_pb2.HealthCheckRequest(service=probe["grpc"].get("service", ""))
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"{address}:{probe['grpc']['port']}", options=options) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=seconds)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
