"""Whether benchmarks are run in small: a quarter of an hour that `make test` does without."""

import os

import pytest

by_make_test_benchmarks = pytest.mark.skipif(
    os.environ.get("TANDEM_BENCHMARK_RUNS") != "small", reason="run by make test-benchmarks"
)
