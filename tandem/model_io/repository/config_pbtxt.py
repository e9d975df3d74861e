"""Writes config.pbtxt, Triton's configuration of a model, from typed values.

It follows the rules of the native libtorch backend, so that a repository runs on that and on the
Python backend: file `1/model.pt` or `1/model.pt2`, inputs INPUT__i, outputs OUTPUT__i, in the order
of the model's own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.priority import LEVEL_COUNT
from tandem.model_io.repository.served_functions import TEXT_ROLES, Role
from tandem.model_io.texts.text_rules import TextRules

_GPU_IMAGE_BATCH_SIZE, _GPU_PAIR_BATCH_SIZE = 64, 128
# What a CPU core computes in about 50 ms (decision 19), pairs at this width: a query's encoding may
# have to wait that long.
_CPU_IMAGE_BATCH_SIZE, _CPU_PAIR_BATCH_SIZE, _CPU_WIDTH = 16, 24, 192
_MIN_PAIR_BATCH_SIZE = 4
OWN_LINE = "# Written by the exporter (tandem models add); edits are lost at the next add."
"""Begins each config.pbtxt of the exporter."""
COMPUTE_SECONDS = "COMPUTE_SECONDS"
"""The output with the model's compute time for the batch."""

_TYPES = {
    Role.TOKEN_IDS: "TYPE_INT64",
    Role.TEXT_MASK: "TYPE_INT64",
    Role.PIXELS: "TYPE_UINT8",
    Role.IMAGE_TOKENS: "TYPE_FP16",
    Role.IMAGE_MASK: "TYPE_INT64",
    Role.EMBEDDING: "TYPE_FP32",
    Role.MATCH_LOGIT: "TYPE_FP32",
}

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


def model_configs(manifest: Manifest) -> dict[str, str]:
    """Returns the text of config.pbtxt for each Triton model, by name."""
    kind = "KIND_GPU" if _is_for_gpu(manifest) else "KIND_CPU"
    return {
        name: render(replace(_config(manifest, name), device_kind=kind)) for name in manifest.models
    }


def image_batch_size(manifest: Manifest) -> int:
    """Returns the maximum batch size of a model that reads pixels."""
    if _is_for_gpu(manifest):
        return _GPU_IMAGE_BATCH_SIZE
    # Our backbones are small; a published encoder of pictures is as wide as its embeddings.
    return _CPU_IMAGE_BATCH_SIZE if manifest.is_joint else pair_batch_size(manifest)


def pair_batch_size(manifest: Manifest) -> int:
    """Returns the maximum batch size of a model that reads texts, pairs or image tokens.

    On a CPU it is smaller for wider models, because time grows with the square of the width. That
    of a joint model is its embeddings', since its image tokens may be a patch's raw pixels, and
    that of a model of regions too. BLIP computes in its image tokens' width and makes its
    embeddings narrower.
    """
    if _is_for_gpu(manifest):
        return _GPU_PAIR_BATCH_SIZE
    width = manifest.embedding_dim
    if not manifest.is_joint and manifest.regions is None:
        width = max(width, manifest.token_width)
    size = round(_CPU_PAIR_BATCH_SIZE * (_CPU_WIDTH / width) ** 2)
    return min(_CPU_PAIR_BATCH_SIZE, max(_MIN_PAIR_BATCH_SIZE, size))


def max_batch_size(manifest: Manifest, name: str) -> int:
    """Returns the maximum batch size of one Triton model."""
    is_of_pixels = manifest.models[name].reads_pixels
    return image_batch_size(manifest) if is_of_pixels else pair_batch_size(manifest)


def image_rules_of(manifest: Manifest, name: str) -> ImageRules:
    """Returns the rules of the pixels that a Triton model reads; ValueError if it reads none."""
    if name in manifest.functions.embed_image or manifest.pair_image is None:
        return manifest.picture
    return manifest.pair_image


def text_rules_of(manifest: Manifest, name: str) -> TextRules:
    """Returns the rules of the texts that a Triton model reads."""
    if name == manifest.functions.embed_text or manifest.pair_text is None:
        return manifest.text
    return manifest.pair_text


def timed(config_text: str) -> str:
    """Returns a config.pbtxt with the compute-time output, which our backend adds.

    Returns the same text if the model takes no batches. The libtorch backend has no such output.
    """
    if 'backend: "pytorch"' not in config_text or not _BATCHED.search(config_text):
        return config_text
    return config_text + _tensor_block("output", TensorSpec(COMPUTE_SECONDS, "TYPE_FP32", (1,)))


def _is_for_gpu(manifest: Manifest) -> bool:
    return manifest.precision == Precision.FP16


def _config(manifest: Manifest, name: str) -> ModelConfig:
    model, largest = manifest.models[name], max_batch_size(manifest, name)
    dims = _dims_of(manifest, name)
    inputs = tuple(
        TensorSpec(f"INPUT__{number}", _TYPES[role], dims[role])
        for number, role in enumerate(model.inputs)
    )
    outputs = tuple(
        TensorSpec(f"OUTPUT__{number}", _TYPES[role], _output_dims(manifest, role))
        for number, role in enumerate(model.outputs)
    )
    warm_ups = tuple(
        WarmUp(
            batch_size,
            {
                f"INPUT__{number}": _warm_dims(dims[role], text_length, image_length, role)
                for number, role in enumerate(model.inputs)
            },
        )
        for text_length, image_length in _warm_lengths(manifest, name)
        for batch_size in _warm_sizes(largest)
    )
    return ModelConfig(name, largest, inputs, outputs, warm_ups)


def _dims_of(manifest: Manifest, name: str) -> dict[Role, tuple[int, ...]]:
    side = image_rules_of(manifest, name).size if manifest.models[name].reads_pixels else 0
    return {
        Role.TOKEN_IDS: (-1,),
        Role.TEXT_MASK: (-1,),
        Role.PIXELS: (side, side, 3),
        Role.IMAGE_TOKENS: (-1, manifest.token_width),
        Role.IMAGE_MASK: (-1,),
    }


def _output_dims(manifest: Manifest, role: Role) -> tuple[int, ...]:
    match role:
        case Role.EMBEDDING:
            return (manifest.embedding_dim,)
        case Role.IMAGE_TOKENS:
            return (manifest.image_token_count, manifest.token_width)
        case _:
            return (1,)


def _warm_lengths(manifest: Manifest, name: str) -> list[tuple[int, int]]:
    """Returns the text and image lengths that the model is called with."""
    model, image_length = manifest.models[name], manifest.image_token_count
    if model.reads_pixels:
        return [(0, 0)]
    lengths = text_rules_of(manifest, name).lengths
    if not model.is_joint:
        return [(text_length, image_length) for text_length in lengths]
    both = [(1, image_length)]  # an image alone
    for text_length in lengths:
        both += [(text_length, 1), (text_length, image_length)]  # a text alone; a pair
    return both


def _warm_dims(
    dims: tuple[int, ...], text_length: int, image_length: int, role: Role
) -> tuple[int, ...]:
    length = text_length if role in TEXT_ROLES else image_length
    return tuple(length if size == -1 else size for size in dims)


def _warm_sizes(largest: int) -> list[int]:
    """Returns the batch sizes to warm up; others are a few ms slower the first time."""
    return sorted({1, max(1, largest // 3), largest})


def render(config: ModelConfig) -> str:
    types = {spec.name: spec.data_type for spec in config.inputs}
    blocks = [
        OWN_LINE,
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
