"""clients/: each language has the public services with what they are made of, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gateway_svc.upstream import SERVICE_NAMES

CLIENTS = Path(__file__).parents[2] / "clients"
LANGUAGES = sorted(path.parent.name for path in CLIENTS.glob("*/buf.gen.yaml"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_is_generated_for_the_public_services(language: str) -> None:
    """Requests between services are no caller's business."""
    template = yaml.safe_load((CLIENTS / language / "buf.gen.yaml").read_text(encoding="utf-8"))
    [protos] = template["inputs"]

    assert set(protos["types"]) == {*SERVICE_NAMES, "tandem.v1.ErrorReason"}
