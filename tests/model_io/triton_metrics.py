"""What Triton itself counts."""

import urllib.request
from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tests.model_io.tiny_triton import Serving


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that a model read, and how often it ran."""

    inferences: float
    executions: float

    @classmethod
    def of(cls, serving: Serving, model: str) -> Self:
        """Returns the counts since the server's start."""
        url = f"http://127.0.0.1:{serving.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as response:
            families = text_string_to_metric_families(response.read().decode())
            values = {
                family.name: sample.value
                for family in families
                for sample in family.samples
                if sample.labels.get("model") == model
            }
        return cls(values["nv_inference_count"], values["nv_inference_exec_count"])

    def since(self, before: Self) -> Self:
        """Returns what has been added."""
        return type(self)(self.inferences - before.inferences, self.executions - before.executions)
