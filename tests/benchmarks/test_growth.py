"""Tests that the soak run tells a leak, made in a real process, from what comes and goes."""

import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace

import grpc
import pytest

from benchmarks.support.loads.growth import Sample, growth_of, sample

HOUR_SECONDS = 3600.0
MB = 10**6
# Grows by 64 KiB, a file and a thread each hundredth of a second.
LEAK = """
import threading, time
kept = []
for _ in range(100_000):
    kept.append(bytearray(b"x") * 65_536)
    kept.append(open("/dev/null"))
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(0.01)
"""
STILL = "import time; time.sleep(60)"


def samples(mb_an_hour: float, *, noise_mb: float = 0.0, seconds: int = 1200) -> list[Sample]:
    """A sample a second of a process that grows by so much, after it has doubled in its warm-up."""
    drawn = random.Random(1)
    return [
        Sample(
            float(second),
            int(
                MB * (100 + 100 * min(1.0, second / (seconds / 4)))
                + MB * mb_an_hour * second / HOUR_SECONDS
                + MB * noise_mb * drawn.uniform(-1, 1)
            ),
            20,
            10,
            4,
        )
        for second in range(seconds)
    ]


@pytest.mark.parametrize("mb_an_hour", [1.5, 2.5])
def test_memory_is_judged_after_the_warm_up(mb_an_hour: float) -> None:
    """What came in the warm-up is forgotten, and noise does not hide half a megabyte an hour."""
    growth = growth_of("it", samples(mb_an_hour, noise_mb=0.1))

    assert growth.mb_an_hour == pytest.approx(mb_an_hour, abs=0.3)
    assert bool(growth.faults()) == (mb_an_hour > 2)
    assert len(growth.mb_by_minute) == 20
    assert growth.mb_by_minute[0] < growth.mb_by_minute[4] < growth.mb_by_minute[6]


@pytest.mark.parametrize(("is_kept", "expected"), [(True, 1), (False, 0)])
def test_files_and_threads_that_stay_are_faults(is_kept: bool, expected: int) -> None:
    """One that is there to the end counts, one that comes and goes does not, however often."""
    seen = [
        replace(each, file_count=20 + is_more, thread_count=10 + is_more)
        for second, each in enumerate(samples(0.0))
        for is_more in [second > 900 and (is_kept or second % 60 < 50)]
    ]

    growth = growth_of("it", seen)

    assert (growth.file_growth, growth.thread_growth) == (expected, expected)
    assert len(growth.faults()) == 2 * expected


@pytest.mark.parametrize(("program", "is_leak"), [(LEAK, True), (STILL, False)])
def test_a_made_leak_is_caught(program: str, is_leak: bool) -> None:
    """The sabotaged control: a real process that keeps memory, files and threads, and one that
    does not.
    """
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            time.sleep(0.3)
            seen = []
            for _ in range(30):
                seen.append(sample(process.pid))
                time.sleep(0.03)
        finally:
            process.kill()

    faults = growth_of("it", seen).faults()

    assert len(faults) == (3 if is_leak else 0), faults


def test_grpcs_pool_is_known_by_the_name_of_its_threads() -> None:
    """The name that gRPC gives them, seen in a process that uses it."""
    before = sample(os.getpid())
    done = threading.Event()
    others = [threading.Thread(target=done.wait) for _ in range(3)]
    for each in others:
        each.start()
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/none/None")(b"", timeout=60)
        # With the last channel of the process its pool goes.
        after = sample(os.getpid())
    done.set()

    assert after.pool_thread_count > 0
    assert after.thread_count >= before.thread_count + len(others)
