"""Runs what a gateway promises in both of its shapes: in a process of its own, and attached."""

from __future__ import annotations

import pytest

from tests.support.gateway_svc import running
from tests.support.grid import drawn


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test in one shape by the seed, and in both in a full run."""
    if "each_shape" in metafunc.fixturenames:
        shapes = drawn(running.SHAPES, metafunc.function.__name__)
        metafunc.parametrize("each_shape", shapes, indirect=True)


@pytest.fixture
def each_shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Chooses the shape of the gateways of a test."""
    shape: str = request.param
    monkeypatch.setattr(running, "chosen_shape", shape)
    return shape
