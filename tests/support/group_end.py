"""Stops what a group of tests shares as soon as the group has ended; a plugin.

The services of a stack check their models every second. One that idles until the session ends takes
processor time from all tests after its group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

_STOPS: defaultdict[str, list[Callable[[], object]]] = defaultdict(list)


def at_group_end(group: str, stop: Callable[[], object]) -> None:
    """Calls `stop` after the last test of the group, where one worker runs the group in a row.

    Without workers other tests may come in between, so whatever is shared stays until the end.
    """
    _STOPS[group].append(stop)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the group that the next test is not in; the fixtures of its tests have ended before."""
    if not hasattr(item.config, "workerinput"):
        return
    group = _group_of(item)
    if group is not None and (nextitem is None or _group_of(nextitem) != group):
        for stop in _STOPS.pop(group, []):
            stop()


def _group_of(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    if marker is None:
        return None
    name: str = marker.args[0] if marker.args else marker.kwargs["name"]
    return name
