"""What the one process for all services is held to, where an overlay has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway_svc.settings import IN_PROCESS, GatewaySettings
from index_svc.settings import IndexSettings
from merged_svc.hosted_services import SHARD_FIELD
from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.health.health import LIVENESS
from tandem.chassis.settings import SettingsError, load
from tests.support.deploy.rendered import Resource
from tests.support.deploy.service_policies import SETTINGS
from tests.support.deploy.workloads import Container, service_containers

EMBEDDED = "merged_svc"
_SHARED = ("ACCESS_", "DOOR_", "TLS_")
_GIBIBYTE = 1 << 30
# Of a volume, the stores' maps may be half: snapshots lie in it too.
_MOST_OF_THE_VOLUME = 0.5


def merged(resources: Sequence[Resource]) -> Iterator[str]:
    """It starts with what it is given, alone, at its ports, and has time to drain."""
    for container in service_containers(resources, EMBEDDED):
        environment = container.environment(resources)
        try:
            yield from _settings(container, environment)
        except SettingsError as error:
            yield f"{container.name}: {error}"
            continue
        yield from _stores(container, environment)
        yield from _lifecycle(container, environment)
        yield from _leftovers(resources, container)


def _settings(container: Container, environment: Mapping[str, str]) -> Iterator[str]:
    prefixes = {module: module.removesuffix("svc").upper() for module in SETTINGS}
    for variable in environment:
        if not variable.startswith((*prefixes.values(), *_SHARED)):
            yield f"{container.name}: {variable} is not a setting of it"
    numbered = {"INDEX_SHARD_NUMBER": "0", "RERANK_SHARD_NUMBER": "0"}
    for module, prefix in prefixes.items():
        load(SETTINGS[module], prefix, {**environment, **numbered})
    its = load(OrchestratorSettings, "ORCHESTRATOR_", environment)
    addresses = {
        its.encoder_address,
        *(address.partition("@")[0] for address in its.index_addresses),
        *its.rerank_addresses,
        environment["GATEWAY_ORCHESTRATOR_ADDRESS"],
    }
    if addresses != {IN_PROCESS}:
        yield f"{container.name}: not all of its services are {IN_PROCESS}: {addresses}"
    doors = [address.partition("@")[2] for address in its.index_addresses]
    if len(set(doors)) != len(doors) or not all(each.startswith("127.0.0.1:") for each in doors):
        yield f"{container.name}: doors of operators are {doors}"
    gateway = load(GatewaySettings, "GATEWAY_", environment)
    bound = {_port(its.address), its.metrics_port, _port(gateway.address)}
    if bound != set(container.ports.values()):
        yield f"{container.name}: binds {bound}, names {container.ports}"


def _stores(container: Container, environment: Mapping[str, str]) -> Iterator[str]:
    paths = {environment["INDEX_STORE_PATH"], environment["RERANK_STORE_PATH"]}
    mount = container.mount("store")
    [path] = paths if len(paths) == 1 else [""]
    if SHARD_FIELD not in path or mount is None or not path.startswith(f"{mount['mountPath']}/"):
        yield f"{container.name}: the stores are not one a shard on its volume"
    count = len(load(OrchestratorSettings, "ORCHESTRATOR_", environment).index_addresses)
    settings = load(IndexSettings, "INDEX_", {**environment, "INDEX_SHARD_NUMBER": "0"})
    size = container.workload.claims()["store"]["resources"]["requests"]["storage"]
    room = int(size.removesuffix("Gi")) * _GIBIBYTE * _MOST_OF_THE_VOLUME
    if count * settings.store_map_bytes > room:
        yield f"{container.name}: the stores may outgrow their volume of {size}"
    if container.workload.resource["spec"]["replicas"] != 1:
        yield f"{container.workload.name}: a store is opened by one process"


def _lifecycle(container: Container, environment: Mapping[str, str]) -> Iterator[str]:
    its = load(OrchestratorSettings, "ORCHESTRATOR_", environment)
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        wanted = {"port": _port(its.address)}
        wanted_of_kind = wanted if kind == "readinessProbe" else {**wanted, "service": LIVENESS}
        if (asked := container.spec[kind].get("grpc")) != wanted_of_kind:
            yield f"{container.name}: {kind} asks for {asked}, not {wanted_of_kind}"
    graces = ("ORCHESTRATOR", "GATEWAY", "INDEX")
    seconds = its.drain_notice_seconds + sum(
        float(environment[f"{prefix}_GRACE_SECONDS"]) for prefix in graces
    )
    given = container.workload.pod["terminationGracePeriodSeconds"]
    if given <= seconds:
        yield f"{container.name}: drains for {seconds} s, is given {given}"


def _leftovers(resources: Sequence[Resource], container: Container) -> Iterator[str]:
    for module in SETTINGS:
        for other in service_containers(resources, module):
            # Triton's canary is an encoder in its own pod.
            if other.workload.labels["app.kubernetes.io/name"] != "triton":
                yield f"{other.name}: is in {container.name} already"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
