"""deploy/compose.yaml: the services' settings are theirs, and each container is locked down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tandem import __version__
from tandem.chassis.access.guard import AccessSettings
from tandem.chassis.settings import load
from tests.support.deploy.rendered import ROOT
from tests.support.deploy.service_policies import SETTINGS

TEXT = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
SERVICES: Mapping[str, Any] = yaml.safe_load(TEXT)["services"]
OURS = {
    name: service["command"][1]
    for name, service in SERVICES.items()
    if service.get("command", [])[:1] == ["-m"]
}


def settings_of(name: str) -> Any:
    """Returns a service's settings; raises SettingsError where compose gives wrong ones."""
    module = OURS[name]
    prefix = module.removesuffix("svc").upper()
    environment = SERVICES[name]["environment"]
    load(AccessSettings, "ACCESS_", environment)
    assert all(variable.startswith((prefix, "ACCESS_")) for variable in environment)
    return load(SETTINGS[module], prefix, environment)


def port(address: str) -> int:
    """Returns the port of a host:port."""
    return int(address.rpartition(":")[2])


def test_every_service_is_there() -> None:
    shards = ["index-0", "index-1", "rerank-0", "rerank-1"]
    assert sorted(OURS) == sorted(["encoder", "gateway", "orchestrator", *shards])


def test_services_start_with_their_settings() -> None:
    for name in OURS:
        its = settings_of(name)
        assert its.address.startswith("0.0.0.0:"), name
        asked = SERVICES[name]["healthcheck"]["test"]
        if name == "gateway":  # which speaks no gRPC
            assert f"'localhost', {its.metrics_port}" in asked[-1]
            assert "'/ready'" in asked[-1]
        else:
            assert asked == ["CMD", "tandem", "health", f"localhost:{port(its.address)}"]
        grace_seconds = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert grace_seconds > its.drain_notice_seconds + its.grace_seconds, name


def test_addresses_are_those_of_the_services() -> None:
    bound = {name: f"{name}:{port(settings_of(name).address)}" for name in OURS}
    door = settings_of("orchestrator")

    assert door.encoder_address == bound["encoder"]
    assert door.index_addresses == (bound["index-0"], bound["index-1"])
    assert door.rerank_addresses == (bound["rerank-0"], bound["rerank-1"])
    for name in ("encoder", "rerank-0", "rerank-1"):
        assert settings_of(name).triton_address == "triton:7440"
    assert "--grpc-port=7440" in SERVICES["triton"]["command"]


def test_a_shards_two_services_share_its_store_and_its_processes() -> None:
    """One volume, writable for both, and one process namespace, as LMDB needs."""
    for number in (0, 1):
        index, rerank = settings_of(f"index-{number}"), settings_of(f"rerank-{number}")
        for field in ("store_path", "shard_number", "shard_count", "store_map_bytes"):
            assert getattr(index, field) == getattr(rerank, field), field
        assert (index.shard_number, index.shard_count) == (number, 2)
        for kind in ("index", "rerank"):
            assert f"store-{number}:/store" in SERVICES[f"{kind}-{number}"]["volumes"]
        assert SERVICES[f"rerank-{number}"]["pid"] == f"service:index-{number}"


def test_containers_are_locked_down() -> None:
    """Read-only, without capabilities, bounded; only doors are published, on loopback.

    Grafana asks Prometheus alone, and shares a network with nothing else.
    """
    networks = {
        "gateway": ["inside", "door"],
        "orchestrator": ["inside", "door"],
        "prometheus": ["inside", "watch"],
        "grafana": ["watch"],
    }
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service.keys().isdisjoint({"cap_add", "privileged"}), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.keys() >= {"mem_limit", "cpus", "pids_limit", "logging"}, name
        assert ("ports" in service) == (name in networks), name
        assert all(each.startswith("127.0.0.1:") for each in service.get("ports", [])), name
        is_alone = service.get("network_mode") == "none"
        assert is_alone or service["networks"] == networks.get(name, ["inside"]), name


def test_callers_need_tokens() -> None:
    for name in ("gateway", "orchestrator", "index-0", "index-1"):
        (mount,) = (each for each in SERVICES[name]["volumes"] if isinstance(each, dict))
        assert SERVICES[name]["environment"]["ACCESS_TOKEN_FILE"] == "/tokens/tokens.toml"
        assert (mount["target"], mount["read_only"]) == ("/tokens", True)
        assert mount["source"].startswith("${TOKEN_FOLDER:?")
        assert mount["bind"] == {"create_host_path": False}


def test_triton_accepts_no_models_over_the_wire() -> None:
    flags = SERVICES["triton"]["command"]

    assert {"--model-control-mode=none", "--allow-http=false", "--strict-readiness=true"} <= set(
        flags
    )
    assert SERVICES["triton"]["shm_size"] == "1gb"


def test_prometheus_scrapes_every_service() -> None:
    """The metrics port of each, Triton's too, and nothing else."""
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (tandem,) = scraped["scrape_configs"]
    (targets,) = (each["targets"] for each in tandem["static_configs"])

    wanted = {f"{name}:{settings_of(name).metrics_port}" for name in OURS} | {"triton:7540"}
    assert set(targets) == wanted
    assert "--metrics-port=7540" in SERVICES["triton"]["command"]


def test_images_are_pinned_and_ours_of_this_release() -> None:
    images = {service["image"] for service in SERVICES.values()}
    ours = {image for image in images if image.startswith("tandem/")}

    assert ours == {f"tandem/{name}:{__version__}" for name in ("service", "models", "triton-cpu")}
    assert all(image.rpartition(":")[2].removeprefix("v")[0].isdigit() for image in images)
