"""What our services and Triton are held to: settings, ports, probes, shards.

Each policy yields a line for each thing that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from encoder_svc.settings import EncoderSettings
from gateway_svc.settings import GatewaySettings
from index_svc.settings import IndexSettings
from orchestrator_svc.settings import OrchestratorSettings
from rerank_svc.settings import RerankSettings
from tandem.chassis.access.guard import AccessSettings
from tandem.chassis.health.health import LIVENESS
from tandem.chassis.serve.process import OptionalServices
from tandem.chassis.settings import SettingsError, load
from tandem.chassis.tls import TlsSettings
from tests.support.deploy.rendered import Resource, named, of_kind
from tests.support.deploy.workloads import (
    Container,
    Workload,
    selects,
    service_containers,
    workloads,
)

SETTINGS: Mapping[str, type[Any]] = {
    "encoder_svc": EncoderSettings,
    "gateway_svc": GatewaySettings,
    "index_svc": IndexSettings,
    "orchestrator_svc": OrchestratorSettings,
    "rerank_svc": RerankSettings,
}
# Those without gRPC, which no probe by gRPC can ask.
_BY_HTTP = {"gateway_svc"}
# The settings that every service has under the same names.
_SHARED: Mapping[str, type[Any]] = {
    "ACCESS_": AccessSettings,
    "DOOR_": OptionalServices,
    "TLS_": TlsSettings,
}
_OF_LIBPQ = "PGSSL"
_NEXT = "next-"
"""Begins the names of what a second model has."""
_TRITONS = {"triton", f"{_NEXT}triton"}
TLS_PROXY = "tandem.chassis.tls_proxy"
_GIBIBYTE = 1 << 30
# Of a volume, the store's map may be half: snapshots lie in it too.
_MOST_OF_THE_VOLUME = 0.5
# NVIDIA's security bulletin 5828 of May 2026.
_TRITON_FLOOR = (26, 5)


def settings_of(container: Container, resources: Sequence[Resource]) -> Any:
    """Returns the service's settings as its container gives them; raises SettingsError."""
    module = container.module
    assert module is not None
    prefix = module.removesuffix("svc").upper()
    return load(SETTINGS[module], prefix, container.environment(resources))


def settings(resources: Sequence[Resource]) -> Iterator[str]:
    """Each service starts with what it is given: all that must be set, and nothing unknown."""
    for module in SETTINGS:
        for container in service_containers(resources, module):
            try:
                environment = container.environment(resources)
                settings_of(container, resources)
                for prefix, shared in _SHARED.items():
                    load(shared, prefix, environment)
            except SettingsError as error:
                yield f"{container.name}: {error}"
            except KeyError as error:
                yield f"{container.name}: no ConfigMap {error}"
            else:
                prefixes = (module.removesuffix("svc").upper(), *_SHARED, _OF_LIBPQ)
                for variable in environment:
                    if not variable.startswith(prefixes):
                        yield f"{container.name}: {variable} is not a setting of it"


def _set_of(container: Container) -> str:
    """Returns the start of the names of the model's set that a container is of."""
    names = container.workload.labels.get("app.kubernetes.io/name", ""), container.spec["name"]
    return _NEXT if any(name.startswith(_NEXT) for name in names) else ""


def _has_next(resources: Sequence[Resource]) -> bool:
    return any(each.name == f"Deployment/{_NEXT}encoder" for each in workloads(resources))


def ports(resources: Sequence[Resource]) -> Iterator[str]:
    """What a service binds its container names, and what a Service names is there."""
    for module in SETTINGS:
        for container in service_containers(resources, module):
            its = settings_of(container, resources)
            bound = {int(its.address.rpartition(":")[2]), its.metrics_port}
            if bound != set(container.ports.values()):
                yield f"{container.name}: binds {bound}, names {container.ports}"
            if its.address.rpartition(":")[0] != "0.0.0.0":
                yield f"{container.name}: listens on {its.address}"
    for service in of_kind(resources, "Service"):
        for workload in workloads(resources):
            if not selects({"matchLabels": service["spec"]["selector"]}, workload.labels):
                continue
            named_ports: dict[str, int] = {}
            for container in workload.containers():
                named_ports |= container.ports
            for port in service["spec"]["ports"]:
                if named_ports.get(port["targetPort"]) != port["port"]:
                    yield f"{named(service)}: {port['name']} is not a port of {workload.name}"


def addresses(resources: Sequence[Resource]) -> Iterator[str]:
    """Every address in a service's settings is a Service here, and the right port of it."""
    ports_of = {
        service["metadata"]["name"]: {
            port["name"]: port["port"] for port in service["spec"]["ports"]
        }
        for service in of_kind(resources, "Service")
    }
    encoders = {"encoder_address": ("encoder", "grpc")}
    if _has_next(resources):
        encoders["next_encoder_address"] = (f"{_NEXT}encoder", "grpc")
    for module, names in (
        ("gateway_svc", {"orchestrator_address": ("orchestrator", "grpc")}),
        ("orchestrator_svc", encoders),
        ("encoder_svc", {"triton_address": ("triton", "grpc")}),
        ("rerank_svc", {"triton_address": ("triton", "grpc")}),
    ):
        for container in service_containers(resources, module):
            its = settings_of(container, resources)
            for field, (service, port) in names.items():
                called = f"{_set_of(container)}{service}"
                wanted = f"{called}:{ports_of.get(called, {}).get(port)}"
                told = getattr(its, field)
                if container.workload.labels.get("app.kubernetes.io/name") == called:
                    wanted = f"127.0.0.1:{_triton_options(container.workload)['--grpc-port']}"
                if told != wanted:
                    yield f"{container.name}: {field} is {told}, not {wanted}"


def certificates(resources: Sequence[Resource]) -> Iterator[str]:
    """Where there is TLS, a certificate is for every name that its service is called by."""
    names = {
        each["spec"]["secretName"]: set(each["spec"].get("dnsNames", []))
        for each in of_kind(resources, "Certificate")
    }
    for module in SETTINGS:
        for container in service_containers(resources, module):
            environment = container.environment(resources)
            if "TLS_CERTIFICATE_FILE" not in environment:
                continue
            secret = _secret_with(container, environment["TLS_CERTIFICATE_FILE"])
            if secret is None or secret != _secret_with(container, environment["TLS_KEY_FILE"]):
                yield f"{container.name}: its certificate is not on its volume"
            patterns = names.get(secret or "", set())
            for name in sorted(_names(container) | _outer_names(container)):
                if not any(fnmatchcase(name, pattern) for pattern in patterns):
                    yield f"{container.name}: {secret} is not for {name}"


def certificates_of_triton(resources: Sequence[Resource]) -> Iterator[str]:
    """Where there is TLS, Triton is reached through the proxy in its pod, and so is asked."""
    callers = [
        container
        for module in ("encoder_svc", "rerank_svc")
        for container in service_containers(resources, module)
        if container.workload.labels.get("app.kubernetes.io/name") not in _TRITONS
    ]
    if not any("TLS_CERTIFICATE_FILE" in each.environment(resources) for each in callers):
        return
    for caller in callers:
        if not settings_of(caller, resources).triton_tls:
            yield f"{caller.name}: calls Triton in plain text"
    for workload in workloads(resources):
        if workload.labels.get("app.kubernetes.io/name") not in _TRITONS:
            continue
        options = _triton_options(workload)
        if options["--grpc-address"] != "127.0.0.1":
            yield f"{workload.name}: Triton listens beyond loopback"
        proxies = [each for each in workload.containers() if each.module == TLS_PROXY]
        if not proxies or not all(each.stays for each in proxies):
            yield f"{workload.name}: no proxy shows a certificate"
        for proxy in proxies:
            environment = proxy.environment(resources)
            if environment["TLSPROXY_TARGET_ADDRESS"] != f"127.0.0.1:{options['--grpc-port']}":
                yield f"{proxy.name}: is not before Triton"
            if environment["TLSPROXY_ADDRESS"] != f"0.0.0.0:{proxy.ports.get('grpc')}":
                yield f"{proxy.name}: does not listen at its port"
            if _secret_with(proxy, environment["TLS_CERTIFICATE_FILE"]) != "triton-certificate":
                yield f"{proxy.name}: its certificate is not on its volume"


def _triton_options(workload: Workload) -> dict[str, str]:
    """Returns the options of the Triton of a pod, by name."""
    [triton] = [each for each in workload.containers() if each.spec["name"] == "triton"]
    return dict(option.partition("=")[::2] for option in triton.spec["args"])


def access_tokens(resources: Sequence[Resource]) -> Iterator[str]:
    """Where there are tokens, every gateway, orchestrator and index asks for those of one Secret.

    Where callers need no certificate, there are tokens.
    """
    asking = [
        container
        for module in ("gateway_svc", "orchestrator_svc", "index_svc")
        for container in service_containers(resources, module)
    ]
    files = {
        container.name: container.environment(resources).get("ACCESS_TOKEN_FILE")
        for container in asking
    }
    for container in asking:
        environment = container.environment(resources)
        path = files[container.name]
        if path is None:
            if any(files.values()):
                yield f"{container.name}: asks for no token where others do"
            elif environment.get("TLS_CLIENT_CERTIFICATE_REQUIRED") == "false":
                yield f"{container.name}: asks for no certificate and no token"
        elif _secret_with(container, path) != "access-tokens":
            yield f"{container.name}: its tokens are not those of the Secret"


def _secret_with(container: Container, path: str) -> str | None:
    """Returns which Secret a file of a container is from; read-only, and not optional."""
    for volume in container.workload.pod.get("volumes", []):
        mount = container.mount(volume["name"])
        if "secret" in volume and mount and path.startswith(f"{mount['mountPath']}/"):
            is_sure = mount.get("readOnly") is True and not volume["secret"].get("optional")
            return str(volume["secret"]["secretName"]) if is_sure else None
    return None


def _names(container: Container) -> set[str]:
    name = container.workload.labels["app.kubernetes.io/name"]
    if container.workload.resource["kind"] != "StatefulSet":
        return {name}
    count = container.workload.resource["spec"]["replicas"]
    return {f"{name}-{number}.{name}" for number in range(count)}


def _outer_names(container: Container) -> set[str]:
    """Returns by what callers in other namespaces, and operators' port-forwards, reach it."""
    if container.module not in ("gateway_svc", "orchestrator_svc", "index_svc"):
        return set()
    if container.module == "index_svc":
        return {"localhost"}
    name = container.workload.labels["app.kubernetes.io/name"]
    namespace = container.workload.resource["metadata"]["namespace"]
    inside = f"{name}.{namespace}"
    return {"localhost", inside, f"{inside}.svc", f"{inside}.svc.cluster.local"}


def headless(resources: Sequence[Resource]) -> Iterator[str]:
    """Connections of gRPC live long: behind one address a caller would stay with one pod.

    Callers by HTTP do not balance their calls, so what answers them has an address.
    """
    for service in of_kind(resources, "Service"):
        speaks_grpc = not any(port["name"] == "http" for port in service["spec"]["ports"])
        if speaks_grpc != (service["spec"].get("clusterIP") == "None"):
            yield f"{named(service)}: is {'not ' if speaks_grpc else ''}headless"


def shards(resources: Sequence[Resource]) -> Iterator[str]:
    """Their number is the same in each of the places that say it, and their stores are shared."""
    for workload in workloads(resources):
        services = [each for each in workload.containers() if each.module]
        if "index_svc" not in {each.module for each in services}:
            continue
        count = workload.resource["spec"]["replicas"]
        told = [settings_of(each, resources) for each in services]
        (door, *_) = service_containers(resources, "orchestrator_svc")
        its = settings_of(door, resources)
        names = [f"shard-{number}.shard" for number in range(count)]
        if told[0].engine != "lmdb":
            yield from _stateless(workload, told, resources)
            names, count = ["shard"], 1
        kinds = [("index", 7420), ("rerank", 7430)]
        for what, port in (*kinds, *([("next_rerank", 7431)] if _has_next(resources) else [])):
            if getattr(its, f"{what}_addresses") != tuple(f"{name}:{port}" for name in names):
                yield f"{door.name}: {what} addresses are not those of {count} shards"
        if {each.shard_count for each in told} != {count}:
            yield f"{workload.name}: shard counts are not {count}"
        if its.shard_map_version != told[0].shard_map_version:
            yield f"{workload.name}: shard map versions differ"
        if told[0].engine != "lmdb":
            continue
        if len({(each.store_path, each.store_map_bytes) for each in told}) != 1:
            yield f"{workload.name}: index and rerank open different stores"
        if not workload.pod.get("shareProcessNamespace"):
            yield f"{workload.name}: LMDB needs one process namespace"
        if "fsGroup" not in workload.pod["securityContext"]:
            yield f"{workload.name}: no group for the store"
        for container in services:
            mount = container.mount("store")
            if mount is None or not told[0].store_path.startswith(f"{mount['mountPath']}/"):
                yield f"{container.name}: the store is not on its volume"
            elif mount.get("readOnly"):
                yield f"{container.name}: LMDB tracks no readers on a read-only volume"
        size = workload.claims()["store"]["resources"]["requests"]["storage"]
        if told[0].store_map_bytes > int(size.removesuffix("Gi")) * _GIBIBYTE * _MOST_OF_THE_VOLUME:
            yield f"{workload.name}: the store may outgrow its volume of {size}"
    yield from _backups(resources)


def _stateless(
    workload: Workload, told: Sequence[Any], resources: Sequence[Resource]
) -> Iterator[str]:
    """Several pods without a disk, one engine whose url is a secret, and its authority."""
    if workload.resource["spec"]["replicas"] < 2 or workload.resource["kind"] != "Deployment":
        yield f"{workload.name}: is not several pods that are alike"
    kinds = {kind for volume in workload.pod["volumes"] for kind in volume.keys() - {"name"}}
    if workload.claims() or not kinds <= {"emptyDir", "secret"}:
        yield f"{workload.name}: has a disk"
    if len({each.engine for each in told}) != 1 or any(each.store_path for each in told):
        yield f"{workload.name}: index and rerank have different stores"
    if {each.engine_url for each in told} != {"the url of Secret/engine"}:
        yield f"{workload.name}: the engine's url is not in its Secret"
    for container in (each for each in workload.containers() if each.module):
        environment = container.environment(resources)
        path = environment.get("PGSSLROOTCERT", "/engine/ca.crt")
        if _secret_with(container, path) != "engine":
            yield f"{container.name}: the engine's authority is not on its volume"
        is_postgres = "pgvector" in environment.values()
        if is_postgres and environment.get("PGSSLMODE") != "verify-full":
            yield f"{container.name}: Postgres' certificate is not verified"


def _backups(resources: Sequence[Resource]) -> Iterator[str]:
    for job in of_kind(resources, "CronJob"):
        (shard,) = (each for each in of_kind(resources, "StatefulSet"))
        count = shard["spec"]["replicas"]
        names = [f"shard-{number}" for number in range(count)]
        (role,) = of_kind(resources, "Role")
        if job["spec"]["jobTemplate"]["spec"]["completions"] != count:
            yield f"{named(job)}: does not back up {count} shards"
        if any(rule["resourceNames"] != names for rule in role["rules"]):
            yield f"{named(role)}: is not for {names}"


def probes(resources: Sequence[Resource]) -> Iterator[str]:
    """Started, alive and ready; whether a process lives never depends on another pod."""
    for workload in workloads(resources):
        every = list(workload.containers())
        own_ports = {port for container in every for port in container.ports.values()}
        for container in every:
            if not container.stays:
                continue
            has_tls = "TLS_CERTIFICATE_FILE" in container.environment(resources)
            has_door = has_tls or container.module in _BY_HTTP
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container.spec.get(kind, {})
                # No probe by gRPC can show a certificate; the proxy speaks no protocol of its own.
                door = "tcpSocket" if container.module == TLS_PROXY else "httpGet"
                asked = probe.get(door if has_door else "grpc", {})
                if asked.get("port") not in own_ports:
                    yield f"{container.name}: no {kind} on a port of its pod"
                elif container.module in SETTINGS:
                    yield from _own_probe(container, kind, asked, has_door=has_door)


def _own_probe(
    container: Container, kind: str, asked: Resource, *, has_door: bool
) -> Iterator[str]:
    # A second model's reranker is in a pod of the first, which is ready without it.
    is_ready = kind == "readinessProbe" and not container.spec["name"].startswith(_NEXT)
    if has_door:
        wanted = {"path": "/ready" if is_ready else "/live", "port": _metrics_port(container)}
    else:
        wanted = {"port": asked["port"]} | ({} if is_ready else {"service": LIVENESS})
    if asked != wanted:
        yield f"{container.name}: {kind} asks for {asked}, not {wanted}"
    if asked["port"] not in container.ports.values():
        yield f"{container.name}: {kind} asks another container"


def _metrics_port(container: Container) -> int:
    (port,) = (port for name, port in container.ports.items() if name.endswith("metrics"))
    return port


def grace(resources: Sequence[Resource]) -> Iterator[str]:
    """A pod is given longer to end than its slowest container takes to drain."""
    for workload in workloads(resources):
        given = workload.pod.get("terminationGracePeriodSeconds", 30)
        for container in workload.containers():
            pause = container.spec.get("lifecycle", {}).get("preStop", {})
            seconds = float(pause.get("sleep", {}).get("seconds", 0))
            if container.module in SETTINGS and container.stays:
                its = settings_of(container, resources)
                seconds += its.drain_notice_seconds + its.grace_seconds
            for argument in container.spec.get("args", []):
                if argument.startswith("--exit-timeout-secs="):
                    seconds += float(argument.partition("=")[2])
            if given <= seconds:
                yield f"{container.name}: drains for {seconds} s, is given {given}"


def triton(resources: Sequence[Resource]) -> Iterator[str]:
    """Nothing is loaded over the wire, no HTTP, an image of after the bulletin, memory to share."""
    wanted = {
        "--model-control-mode=none",
        "--allow-http=false",
        "--strict-readiness=true",
        "--disable-auto-complete-config",
    }
    for workload in workloads(resources):
        for container in workload.containers():
            if container.spec.get("command") != ["tritonserver"]:
                continue
            flags = set(container.spec["args"])
            if missing := wanted - flags:
                yield f"{container.name}: without {missing}"
            names = [flag.partition("=")[0] for flag in flags]
            if len(set(names)) != len(names):
                yield f"{container.name}: says a flag twice"
            bound = {
                int(flag.partition("=")[2]) for flag in flags if re.match(r"--\w+-port=", flag)
            }
            if bound != set(container.ports.values()):
                yield f"{container.name}: binds {bound}, names {container.ports}"
            tag = re.search(r"nvidia/tritonserver:(\d\d)\.(\d\d)-", container.spec["image"])
            if tag and (int(tag[1]), int(tag[2])) <= _TRITON_FLOOR:
                yield f"{container.name}: {container.spec['image']} is not above the bulletin"
            memory = container.mount("shm")
            volumes = {volume["name"]: volume for volume in workload.pod["volumes"]}
            if not memory or volumes["shm"]["emptyDir"].get("medium") != "Memory":
                yield f"{container.name}: /dev/shm is not memory"
            canary = container.spec["livenessProbe"]["grpc"]["port"]
            asked = [each for each in workload.containers() if canary in each.ports.values()]
            if not asked or asked[0].module != "encoder_svc":
                yield f"{container.name}: whether it lives is not asked of an inference"
