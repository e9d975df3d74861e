"""deploy/compose.tls.yaml: certificates on every hop of compose.yaml, Triton's included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem.chassis.settings import load
from tandem.chassis.tls import Identity, TlsSettings
from tandem.chassis.tls_proxy import ProxySettings
from tandem.cli.serve.certificates import CONTAINERS
from tandem.stack.certificates import LocalAuthority
from tests.deploy.test_compose import OURS, SERVICES, port
from tests.support.deploy.rendered import ROOT
from tests.support.deploy.service_policies import SETTINGS

TEXT = (ROOT / "deploy" / "compose.tls.yaml").read_text(encoding="utf-8")
LOCKED: Mapping[str, Any] = yaml.safe_load(TEXT)["services"]


def folder_of(name: str) -> str:
    """Returns which folder of TLS_FOLDER a container has at /certificate."""
    (mount,) = LOCKED[name]["volumes"]
    assert (mount["target"], mount["read_only"]) == ("/certificate", True)
    assert mount["bind"] == {"create_host_path": False}
    assert mount["source"].startswith("${TLS_FOLDER:?")
    return str(mount["source"].rpartition("/")[2])


def test_every_service_has_certificates() -> None:
    assert set(LOCKED) == {*OURS, "triton", "tls-proxy"}
    assert {name: folder_of(name) for name in OURS} == {name: name for name in OURS}
    assert folder_of("tls-proxy") == "triton"
    assert set(CONTAINERS) == {*OURS, "triton"}


@pytest.mark.parametrize("name", ["gateway", "encoder", "tls-proxy"])
def test_a_container_starts_with_what_the_command_makes(name: str, tmp_path: Path) -> None:
    """Its identity reads the files, and lets in those that call it, by their certificates."""
    authority = LocalAuthority(tmp_path)
    folder = authority.issue(folder_of(name), CONTAINERS[folder_of(name)])
    environment = LOCKED[name]["environment"]
    here = {key: value.replace("/certificate", str(folder)) for key, value in environment.items()}

    identity = Identity(load(TlsSettings, "TLS_", here))

    callers: dict[str, set[str]] = {
        "tls-proxy": {"encoder", "rerank"},
        "gateway": set(),
        "orchestrator": set(),
    }
    assert identity.peer_names == callers.get(name, {"orchestrator"})
    assert identity.is_client_certificate_required == (name not in ("gateway", "orchestrator"))


def test_services_read_their_settings_from_both_files() -> None:
    """Callers of Triton show certificates; health is asked where none are needed."""
    for name, module in OURS.items():
        environment = SERVICES[name]["environment"] | LOCKED[name]["environment"]
        its = load(SETTINGS[module], module.removesuffix("svc").upper(), environment)
        assert getattr(its, "triton_tls", True) is True, name
        assert f"'localhost', {its.metrics_port}," in LOCKED[name]["healthcheck"]["test"][-1]


def test_triton_is_reached_through_the_proxy_alone() -> None:
    """It listens on loopback, with the flags that it has without certificates."""
    proxy = LOCKED["tls-proxy"]
    settings = load(ProxySettings, "TLSPROXY_", proxy["environment"])
    changed = {"--grpc-address=127.0.0.1", f"--grpc-port={port(settings.target_address)}"}

    assert proxy["network_mode"] == "service:triton"
    assert settings.target_address.startswith("127.0.0.1:")
    assert settings.address == f"0.0.0.0:{port('triton:7440')}"
    assert set(LOCKED["triton"]["command"]) - set(SERVICES["triton"]["command"]) == changed
    assert proxy.items() >= {"read_only": True, "cap_drop": ["ALL"]}.items()
