"""What the fused attention saves of what is served in fp32, and would cost in bf16.

    python benchmarks/bench_attention.py [--rounds 60] [--threads 1]

Encoders as they are exported, traced, in this process, in batches of the sizes that Triton makes
of pairs and of texts; what attention costs does not hang on weights, so they are random. Both ways
take turns. Told is the processor's time over all threads, which a shared machine disturbs less than
a clock's, and the largest difference between what both give.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.model_io.precision import Precision, native_precision
from tandem.modeling.attention import multi_head_attention
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.lowered import lowered
from tandem.modeling.joint_model import JointModel

_ATTENTION = "tandem.modeling.joint_encoder.multi_head_attention"
_WARM_ROUND_COUNT = 3  # the first runs optimise the trace

Encode = Callable[..., tuple[Tensor, Tensor]]
Attention = Callable[..., Tensor]


def main() -> None:
    """Prints a JSON line and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="times that each is run")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [
        measure(name, config, shape, precision, arguments.rounds)
        for precision in dict.fromkeys((Precision.FP32, native_precision()))
        for name, config, shapes in served_models()
        for shape in shapes
    ]
    print(json.dumps({"benchmark": "attention", "threads": arguments.threads, "rows": rows}))
    print(table(rows))


def served_models() -> list[tuple[str, JointConfig, list[tuple[int, int, int]]]]:
    """Returns models, each with shapes of its batches: rows, text tokens, image tokens."""
    shipped = CheckpointFiles.read(default_checkpoint()).config
    image = shipped.grid_side**2
    minilm = replace(shipped, width=384, layer_count=6, head_count=12, encoder="post_norm")
    large = replace(shipped, width=768, layer_count=12, head_count=12, vocabulary_size=30_522)
    return [
        (
            "shipped, 4 x 192",
            shipped,
            [(10, 16, image), (24, 16, image), (24, 16, 1), (1, 16, 1), (24, 1, image)],
        ),
        ("MiniLM's size, 6 x 384", minilm, [(5, 16, image), (6, 16, 1)]),
        ("12 x 768", large, [(4, 16, image)]),
    ]


@torch.inference_mode()
def measure(
    name: str,
    config: JointConfig,
    shape: tuple[int, int, int],
    precision: Precision,
    round_count: int,
) -> dict[str, Any]:
    """Returns one row: median and least milliseconds of both ways."""
    torch.manual_seed(0)
    encoder = lowered(JointModel(config).eval(), precision).joint_encoder
    inputs = batch(config, *shape)
    sides = {
        "written_out": traced(encoder, inputs, written_out),
        "fused": traced(encoder, inputs, fused),
    }
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for round_number in range(round_count + _WARM_ROUND_COUNT):
        for side, encode in sides.items():
            start_seconds = time.process_time()
            encode(*inputs)
            if round_number >= _WARM_ROUND_COUNT:
                seconds[side].append(time.process_time() - start_seconds)
    pairs = zip(*(encode(*inputs) for encode in sides.values()), strict=True)
    return {
        "model": name,
        "precision": precision,
        "shape": shape,
        **{f"{side}_median_ms": 1e3 * statistics.median(taken) for side, taken in seconds.items()},
        **{f"{side}_min_ms": 1e3 * min(taken) for side, taken in seconds.items()},
        "largest_difference": max(float((one - other).abs().max()) for one, other in pairs),
    }


def traced(encoder: nn.Module, inputs: tuple[Tensor, ...], attention: Attention) -> Encode:
    """Returns the encoder as it is exported, with one way of attention."""
    with mock.patch(_ATTENTION, attention):
        return torch.jit.trace(encoder, inputs, check_trace=False)


def fused(
    query_key_value_BLE: Tensor, attends_B11L: Tensor, head_count: int, **_: object
) -> Tensor:
    """Returns what the kernel gives, in bf16 too."""
    batch_size, length, _size = query_key_value_BLE.shape
    heads = query_key_value_BLE.view(batch_size, length, 3, head_count, -1)
    mixed_BHLW = F.scaled_dot_product_attention(
        *heads.permute(2, 0, 3, 1, 4).unbind(0), attends_B11L
    )
    return mixed_BHLW.transpose(1, 2).reshape(batch_size, length, -1)


def written_out(
    query_key_value_BLE: Tensor, attends_B11L: Tensor, head_count: int, **_: object
) -> Tensor:
    """Returns what training's way gives, which drops nothing."""
    return multi_head_attention(query_key_value_BLE, attends_B11L, head_count, is_training=True)


def batch(
    config: JointConfig, rows: int, text_length: int, image_length: int
) -> tuple[Tensor, ...]:
    """Returns inputs of the encoder; a text beside one image token has no image."""
    ids = torch.randint(0, config.vocabulary_size, (rows, text_length))
    text_mask = torch.ones_like(ids)
    text_mask[1:, max(1, text_length * 3 // 4) :] = 0
    tokens = torch.randn(rows, image_length, config.token_width).half()
    image_mask = torch.full((rows, image_length), int(image_length > 1))
    return ids, text_mask, tokens, image_mask


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the figures as Markdown."""
    lines = [
        "| model | precision | rows, text, image tokens | written out, ms | fused, ms | ratio "
        "| of the least | differ by |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        median, least = (
            row[f"fused_{s}"] / row[f"written_out_{s}"] for s in ("median_ms", "min_ms")
        )
        shape = ", ".join(map(str, row["shape"]))
        lines.append(
            f"| {row['model']} | {row['precision']} | {shape} | {row['written_out_median_ms']:.1f} "
            f"| {row['fused_median_ms']:.1f} | {median:.3f} | {least:.3f} "
            f"| {row['largest_difference']:.0e} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
