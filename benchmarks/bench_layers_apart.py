"""What layers apart save: the cross-encoder on one search's pairs, by how many layers are apart.

    python benchmarks/bench_layers_apart.py [--rounds 60] [--threads 1] [--large]

The joint encoder as it is exported, traced, in this process: 20 pairs of one text and as many
images. What a layer costs does not hang on its weights, so the models are not trained. All models
take turns. Told is the processor's time, over all threads, which a shared machine disturbs less
than a clock's: the median, and the least.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tandem.model_io.precision import Precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.lowered import lowered
from tandem.modeling.export.served_parts import served_parts
from tandem.modeling.joint_model import JointModel

PAIR_COUNT = 20
TEXT_LENGTH = 16


@dataclass(frozen=True)
class Row:
    """One model in one precision."""

    model: str
    precision: Precision
    apart_layer_count: int
    run: Callable[[], object]
    seconds: list[float]


def main() -> None:
    """Prints a JSON line and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="times that each model is run")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--large", action="store_true", help="12 layers of 768 instead")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shipped = CheckpointFiles.read(default_checkpoint()).config
    # The paper's size: 12 layers of 768, half a hundred image tokens.
    large = replace(shipped, width=768, layer_count=12, head_count=12, vocabulary_size=30_522)
    name, config, counts = (
        ("12 x 768", large, (0, 3, 6, 9, 11))
        if arguments.large
        else ("shipped, 4 x 192", shipped, (0, 1, 2, 3))
    )
    rows = [
        _row(name, config, precision, count)
        for precision in (Precision.BF16, Precision.FP32)
        for count in counts
    ]
    for round_number in range(arguments.rounds + 2):
        for row in rows:
            start_seconds = time.process_time()
            row.run()
            if round_number >= 2:  # the first two optimise the trace
                row.seconds.append(time.process_time() - start_seconds)
    print(json.dumps([_figures(row) for row in rows]))
    _print_table(rows, arguments.threads)


def _row(name: str, config: JointConfig, precision: Precision, apart_layer_count: int) -> Row:
    torch.manual_seed(0)
    model = JointModel(replace(config, apart_layer_count=apart_layer_count)).eval()
    _, encoder = served_parts(lowered(model, precision))
    inputs = _pairs(model.config)
    with torch.inference_mode():
        traced = torch.jit.trace(encoder, inputs, check_trace=False)

    @torch.inference_mode()
    def run() -> object:
        return traced(*inputs)

    run()
    return Row(name, precision, apart_layer_count, run, [])


def _pairs(config: JointConfig) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    ids = torch.randint(4, 1_000, (1, TEXT_LENGTH)).expand(PAIR_COUNT, -1).contiguous()
    tokens = torch.randn(PAIR_COUNT, config.image_token_count, config.served_token_width).half()
    every = torch.ones(PAIR_COUNT, config.image_token_count, dtype=torch.int64)
    return ids, torch.ones_like(ids), tokens, every


def _figures(row: Row) -> dict[str, object]:
    return {
        "model": row.model,
        "precision": row.precision,
        "apart_layer_count": row.apart_layer_count,
        "least_cpu_ms": 1_000 * min(row.seconds),
        "median_cpu_ms": 1_000 * statistics.median(row.seconds),
    }


def _print_table(rows: list[Row], thread_count: int) -> None:
    print(f"{PAIR_COUNT} pairs, {TEXT_LENGTH} text tokens, {thread_count} thread(s)\n")
    print("| model | precision | layers apart | CPU ms, median | least | of none apart |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    whole = 1.0
    for row in rows:
        least, median = 1_000 * min(row.seconds), 1_000 * statistics.median(row.seconds)
        whole = median if row.apart_layer_count == 0 else whole
        print(
            f"| {row.model} | {row.precision} | {row.apart_layer_count} "
            f"| {median:.1f} | {least:.1f} | {100 * median / whole:.0f} % |"
        )


if __name__ == "__main__":
    main()
