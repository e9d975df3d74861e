"""What the orchestrator measures of its own: the stages of a search and of an ingest batch."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tandem.chassis.metrics import stage_histogram


class StageClock:
    """Times stages into `tandem_orchestrator_stage_duration_seconds{stage}`."""

    def __init__(self) -> None:
        self._histogram = stage_histogram("orchestrator")

    @contextmanager
    def stage(self, name: str, seconds: dict[str, float] | None = None) -> Iterator[None]:
        """Times its body, failed or not, and notes the time in `seconds` under the name."""
        start_time = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start_time
            self._histogram.labels(name).observe(elapsed)
            if seconds is not None:
                seconds[name] = elapsed
