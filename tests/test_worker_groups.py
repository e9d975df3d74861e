"""Tests of one group (`xdist_group`) go to one worker, for they share what takes long to start."""

import pytest


@pytest.mark.xdist_group("alone")
def test_the_scheduler_gets_the_groups(request: pytest.FixtureRequest) -> None:
    """By the end of a test's id, as pytest-xdist does.

    With pytest 9.2 it told of none, in silence: each worker started its own Tritons, on the same
    cores, and the suite took half as long again (pytest-xdist's issue 1386).
    """
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("only workers with groups have some to tell of")

    assert request.node.nodeid.endswith("@alone")
