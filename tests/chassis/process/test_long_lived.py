"""process.long_lived: what a full collection of garbage walks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.chassis.serve.test_serve import started

# In a process of its own, because nothing else may be frozen with this one's objects.
PROGRAM = """
import gc, weakref
import grpc, numpy
from tandem.chassis.process.memory import set_long_lived_aside

class Ring:
    pass

def ring():
    one, other = Ring(), Ring()
    one.other, other.one = other, one
    return weakref.ref(one)

before, kept = ring(), Ring()
set_long_lived_aside()
kept.later, after = Ring(), ring()
walked = len(gc.get_objects())
gc.collect()
print(walked, before() is None, after() is None)
"""


def test_a_collection_visits_only_later_objects() -> None:
    """It still frees cycles, of before and of later."""
    walked, *are_freed = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True).split()

    assert int(walked) < 1_000
    assert are_freed == ["True", "True"]


async def test_a_service_freezes_its_start_up_objects(tmp_path: Path) -> None:
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
