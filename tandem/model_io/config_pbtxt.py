"""config.pbtxt, from typed values: what Triton is told of a model.

Obeys the native libtorch backend's rules, so that a repository runs on it as on the Python one:
file `1/model.pt`, inputs named as forward's arguments, outputs NAME__i.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tandem.model_io.manifest import IMAGE_BACKBONE, JOINT_ENCODER, Manifest
from tandem.model_io.precision import Precision
from tandem.model_io.priority import LEVEL_COUNT

_GPU_IMAGE_BATCH_SIZE, _GPU_PAIR_BATCH_SIZE = 64, 128
# As many as a core of a CPU computes in about 50 ms (decision 19), the pairs at this width: a
# query's encoding may have to wait for them.
_CPU_IMAGE_BATCH_SIZE, _CPU_PAIR_BATCH_SIZE, _CPU_WIDTH = 16, 24, 192
_MIN_PAIR_BATCH_SIZE = 4
COMPUTE_SECONDS = "COMPUTE_SECONDS"
"""The output that says how long the model took over the batch."""

_BATCHED = re.compile(r"^\s*max_batch_size: [1-9]", re.MULTILINE)
# With one instance, Triton 2.51 often left what came while it was at work in the queue for half a
# second after it was free (decision 11).
INSTANCE_COUNT = 2
# A request that finds an instance free is not kept for others to come: those of one search are
# meant to run side by side. What waits for a busy one goes together anyway (decision 23).
_QUEUE_DELAY_MICROSECONDS = 0
# Past this many waiting requests a new one is refused at once: 16 searches that rerank on two
# shards make 32.
_QUEUE_SIZE = 256
# Half of the 60 s that a search or an ingested batch may take at most; requests tell shorter ones,
# and could not tell longer ones. With 10 s, batches of an ingest failed by a large model on a CPU.
_QUEUE_TIMEOUT_MICROSECONDS = 30_000_000


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output; -1 is a dimension that differs between requests. No batch dimension."""

    name: str
    data_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """One batch that the server runs before it says ready."""

    batch_size: int
    dims: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model."""

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
    """Returns how many pictures the image backbone takes at once."""
    return _GPU_IMAGE_BATCH_SIZE if _is_for_gpu(manifest) else _CPU_IMAGE_BATCH_SIZE


def pair_batch_size(manifest: Manifest) -> int:
    """Returns how many rows the joint encoder takes at once.

    On a CPU fewer the wider the model is, whose time grows by the square of its width. That is its
    embeddings'; image tokens may have another, such as a patch's bare pixels.
    """
    if _is_for_gpu(manifest):
        return _GPU_PAIR_BATCH_SIZE
    size = round(_CPU_PAIR_BATCH_SIZE * (_CPU_WIDTH / manifest.embedding_dim) ** 2)
    return min(_CPU_PAIR_BATCH_SIZE, max(_MIN_PAIR_BATCH_SIZE, size))


def timed(config_text: str) -> str:
    """Returns a config.pbtxt with an output more, which our own backend adds to a model's.

    The same text where the model takes no batches. Not for libtorch's backend, which gives what the
    model gives.
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
    """Returns batch sizes, one to the largest; what lies between is a few ms slower at first."""
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
