"""process.long_lived: what a full collection of garbage walks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chassis.serve.test_serve import started

# In a process of its own, because nothing else may be frozen with this one's objects.
PROGRAM = """
import gc, sys, weakref
import grpc, numpy
from tandem.chassis.process.memory import set_long_lived_aside

class Ring:
    pass

def ring():
    one, other = Ring(), Ring()
    one.other, other.one = other, one
    return weakref.ref(one)

before, kept = ring(), Ring()
if "aside" in sys.argv:
    set_long_lived_aside()
kept.later, after = Ring(), ring()
walked = len(gc.get_objects())
gc.collect()
print(walked, before() is None, after() is None)
"""


@pytest.mark.parametrize("is_aside", [True, False])
def test_a_collection_visits_only_later_objects(is_aside: bool) -> None:
    """And still frees cycles, of before and of later; the control sets nothing aside."""
    command = [sys.executable, "-c", PROGRAM, *(["aside"] if is_aside else [])]

    walked, *are_freed = subprocess.check_output(command, text=True).split()

    assert (int(walked) < 1_000) == is_aside, walked
    assert are_freed == ["True", "True"]


async def test_a_service_freezes_its_start_up_objects(tmp_path: Path) -> None:
    """Not before it is warm, which is when all of it is there."""
    (tmp_path / "cold").touch()
    async with started(tmp_path) as service:
        await service.event("not warm yet")
        service.process.terminate()
        await service.end()
        never_warm = int((tmp_path / "closed").read_text())
    (tmp_path / "cold").unlink()

    async with started(tmp_path) as service:
        await service.event("serving")
        service.process.terminate()
        await service.end()

    assert never_warm == 0
    assert int((tmp_path / "closed").read_text()) > 10_000
