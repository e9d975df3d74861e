"""process.blas_threads: BLAS has one thread in a service, or as many as its user set."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# What index_svc loads before it is prepared; each brings a BLAS of its own.
PROGRAM = """
import asyncio, json, sys
import faiss, numpy
from threadpoolctl import threadpool_info
from tandem.chassis.serve.process import prepare

async def main():
    if "prepared" in sys.argv:
        prepare("index")

asyncio.run(main())
print(json.dumps([each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]))
"""


def thread_counts(*arguments: str, **variables: str) -> list[int]:
    """Returns how many threads each BLAS of a process has."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {key: value for key, value in os.environ.items() if key not in names}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    counts: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert counts, "no BLAS was found"
    return counts


@pytest.mark.skipif(os.cpu_count() == 1, reason="BLAS has one thread on one core")
def test_a_service_starts_no_thread_for_a_product() -> None:
    assert max(thread_counts()) > 1
    assert set(thread_counts("prepared")) == {1}


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS"])
def test_a_number_from_outside_stays(name: str) -> None:
    assert 2 in thread_counts("prepared", **{name: "2"})
