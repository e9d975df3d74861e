"""Tests of the orchestrator's settings."""

import pytest

from orchestrator_svc.settings import OrchestratorSettings
from tandem.chassis.settings import SettingsError, load

ADDRESSES = {
    "ORCHESTRATOR_ENCODER_ADDRESS": "h:1",
    "ORCHESTRATOR_INDEX_ADDRESSES": "h:2,h:3",
    "ORCHESTRATOR_RERANK_ADDRESSES": "h:4,h:5",
}


def test_both_lists_of_shards_have_one_length() -> None:
    settings = load(OrchestratorSettings, "ORCHESTRATOR_", ADDRESSES)
    assert settings.rerank_addresses == ("h:4", "h:5")
    for name in ("ORCHESTRATOR_INDEX_ADDRESSES", "ORCHESTRATOR_RERANK_ADDRESSES"):
        with pytest.raises(SettingsError, match="same number of shards"):
            load(OrchestratorSettings, "ORCHESTRATOR_", ADDRESSES | {name: "h:2"})
