"""Runs what a gateway promises in both of its shapes: in a process of its own, and attached."""

from __future__ import annotations

import pytest

from tests.support.gateway_svc import running


@pytest.fixture(params=running.SHAPES)
def each_shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Chooses the shape of the gateways of a test."""
    shape: str = request.param
    monkeypatch.setattr(running, "chosen_shape", shape)
    return shape
