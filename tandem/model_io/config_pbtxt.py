"""Writes config.pbtxt, Triton's configuration of a model, from typed values.

It follows the rules of the native libtorch backend, so that a repository runs on that and on the
Python backend: file `1/model.pt`, inputs named like forward's arguments, outputs NAME__i.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest
from tandem.model_io.precision import Precision
from tandem.model_io.priority import LEVEL_COUNT

_GPU_IMAGE_BATCH_SIZE, _GPU_PAIR_BATCH_SIZE = 64, 128
# What a CPU core computes in about 50 ms (decision 19), pairs at this width: a query's encoding may
# have to wait that long.
_CPU_IMAGE_BATCH_SIZE, _CPU_PAIR_BATCH_SIZE, _CPU_WIDTH = 16, 24, 192
_MIN_PAIR_BATCH_SIZE = 4
COMPUTE_SECONDS = "COMPUTE_SECONDS"
"""The output with the model's compute time for the batch."""

_BATCHED = re.compile(r"^\s*max_batch_size: [1-9]", re.MULTILINE)
# With one instance, Triton 2.51 often left requests in the queue for half a second after the
# instance was free (decision 11).
INSTANCE_COUNT = 2
# A request that finds a free instance does not wait for others: the requests of one search should
# run in parallel. Requests that wait for a busy instance are batched anyway (decision 23).
_QUEUE_DELAY_MICROSECONDS = 0
# Over this many waiting requests a new one is rejected: 16 searches that rerank on two shards
# make 32.
_QUEUE_SIZE = 256
# Half of the 60 s limit of a search or an ingested batch; a request may shorten it, but not extend
# it. With 10 s, ingested batches failed with a large model on a CPU.
_QUEUE_TIMEOUT_MICROSECONDS = 30_000_000


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Describes one input or output without batch dimension; -1 is a variable dimension."""

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Describes one batch that the server runs before it is ready."""

    batch_size: int
    dims: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Describes the configuration of one model."""

    name: str
    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    warm_ups: tuple[WarmUp, ...]
    device_kind: str = "KIND_CPU"


def joint_model_configs(manifest: Manifest) -> dict[str, str]:
    """Returns the text of config.pbtxt for each of the joint model's two models, by name."""
    kind = "KIND_GPU" if _is_for_gpu(manifest) else "KIND_CPU"
    configs = (_image_backbone(manifest), _joint_encoder(manifest))
    return {config.name: render(replace(config, device_kind=kind)) for config in configs}


def image_batch_size(manifest: Manifest) -> int:
    """Returns the image backbone's maximum batch size."""
    return _GPU_IMAGE_BATCH_SIZE if _is_for_gpu(manifest) else _CPU_IMAGE_BATCH_SIZE


def pair_batch_size(manifest: Manifest) -> int:
    """Returns the joint encoder's maximum batch size.

    On a CPU it is smaller for wider models, because time grows with the square of the width. That
    is the width of embeddings; image tokens may have another, such as a patch's raw pixels.
    """
    if _is_for_gpu(manifest):
        return _GPU_PAIR_BATCH_SIZE
    size = round(_CPU_PAIR_BATCH_SIZE * (_CPU_WIDTH / manifest.embedding_dim) ** 2)
    return min(_CPU_PAIR_BATCH_SIZE, max(_MIN_PAIR_BATCH_SIZE, size))


def timed(config_text: str) -> str:
    """Returns a config.pbtxt with the compute-time output, which our backend adds.

    Returns the same text if the model takes no batches. The libtorch backend has no such output.
    """
    if 'backend: "pytorch"' not in config_text or not _BATCHED.search(config_text):
        return config_text
    return config_text + _tensor_block("output", TensorSpec(COMPUTE_SECONDS, "TYPE_FP32", (1,)))


def _is_for_gpu(manifest: Manifest) -> bool:
    return manifest.precision == Precision.FP16


def _image_backbone(manifest: Manifest) -> ModelConfig:
    pixels = TensorSpec("pixels", "TYPE_UINT8", (manifest.image_size, manifest.image_size, 3))
    tokens = TensorSpec(
        "OUTPUT__0", "TYPE_FP16", (manifest.image_token_count, manifest.token_width)
    )
    largest = image_batch_size(manifest)
    warm_ups = tuple(WarmUp(size, {"pixels": pixels.dims}) for size in _warm_sizes(largest))
    return ModelConfig(IMAGE_BACKBONE, largest, (pixels,), (tokens,), warm_ups)


def _joint_encoder(manifest: Manifest) -> ModelConfig:
    inputs = (
        TensorSpec("input_ids", "TYPE_INT64", (-1,)),
        TensorSpec("text_mask", "TYPE_INT64", (-1,)),
        TensorSpec("image_tokens", "TYPE_FP16", (-1, manifest.token_width)),
        TensorSpec("image_mask", "TYPE_INT64", (-1,)),
    )
    outputs = (
        TensorSpec("OUTPUT__0", "TYPE_FP32", (manifest.embedding_dim,)),
        TensorSpec("OUTPUT__1", "TYPE_FP32", (1,)),
    )
    rows = manifest.image_token_count
    lengths = [(1, rows)]  # an image alone
    for text_length in manifest.text_length_buckets:
        lengths += [(text_length, 1), (text_length, rows)]  # a text alone; a pair
    largest = pair_batch_size(manifest)
    warm_ups = tuple(
        WarmUp(batch_size, _joint_dims(text_length, image_length, manifest.token_width))
        for text_length, image_length in lengths
        for batch_size in _warm_sizes(largest)
    )
    return ModelConfig(JOINT_ENCODER, largest, inputs, outputs, warm_ups)


def _warm_sizes(largest: int) -> list[int]:
    """Returns the batch sizes to warm up; others are a few ms slower the first time."""
    return sorted({1, max(1, largest // 3), largest})


def _joint_dims(text_length: int, image_length: int, width: int) -> dict[str, tuple[int, ...]]:
    return {
        "input_ids": (text_length,),
        "text_mask": (text_length,),
        "image_tokens": (image_length, width),
        "image_mask": (image_length,),
    }


def render(config: ModelConfig) -> str:
    """Returns config.pbtxt."""
    types = {spec.name: spec.data_type for spec in config.inputs}
    blocks = [
        "# Written by the exporter (tandem models add); edits are lost at the next add.",
        f'name: "{config.name}"',
        'backend: "pytorch"',
        f"max_batch_size: {config.max_batch_size}",
        *(_tensor_block("input", spec) for spec in config.inputs),
        *(_tensor_block("output", spec) for spec in config.outputs),
        f"instance_group [ {{ count: {INSTANCE_COUNT}, kind: {config.device_kind} }} ]",
        "dynamic_batching {\n"
        f"  max_queue_delay_microseconds: {_QUEUE_DELAY_MICROSECONDS}\n"
        f"  priority_levels: {LEVEL_COUNT}\n"
        f"  default_priority_level: {LEVEL_COUNT}\n"
        "  default_queue_policy {\n"
        "    timeout_action: REJECT\n"
        f"    default_timeout_microseconds: {_QUEUE_TIMEOUT_MICROSECONDS}\n"
        "    allow_timeout_override: true\n"
        f"    max_queue_size: {_QUEUE_SIZE}\n"
        "  }\n"
        "}",
        *(_warm_up_block(number, each, types) for number, each in enumerate(config.warm_ups)),
    ]
    return "\n".join(blocks) + "\n"


def _tensor_block(kind: str, spec: TensorSpec) -> str:
    dims = _dims(spec.dims)
    return f'{kind} [ {{ name: "{spec.name}", data_type: {spec.data_type}, dims: {dims} }} ]'


def _warm_up_block(number: int, warm_up: WarmUp, types: Mapping[str, str]) -> str:
    inputs = "\n".join(
        f'  inputs {{ key: "{name}" value: {{ data_type: {types[name]}, '
        f"dims: {_dims(dims)}, zero_data: true }} }}"
        for name, dims in warm_up.dims.items()
    )
    return (
        f'model_warmup [ {{\n  name: "warm-up-{number}"\n  batch_size: {warm_up.batch_size}\n'
        f"{inputs}\n}} ]"
    )


def _dims(dims: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, dims))} ]"
