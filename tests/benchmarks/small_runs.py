"""Whether benchmarks are run in small: a minute and a half that `make test` does without."""

import os

import pytest

by_make_test_benchmarks = pytest.mark.skipif(
    os.environ.get("TANDEM_BENCHMARK_RUNS") != "small", reason="run by make test-benchmarks"
)
