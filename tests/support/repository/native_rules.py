"""What Triton's native libtorch backend asks of a model folder, as a check.

Our Python backend would take more. A repository that keeps to these runs on either.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

Dims = tuple[int, ...]
# The dimensions of each input of one request, without the batch.
Shapes = Mapping[str, Dims]

# https://github.com/triton-inference-server/pytorch_backend: the types that torch has, less BF16.
_DATA_TYPES = {
    f"TYPE_{name}"
    for name in ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64")
}


def read_config(path: Path) -> model_config_pb2.ModelConfig:
    """Returns config.pbtxt as Triton's own message; raises text_format.ParseError."""
    return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())


def violations(
    config: model_config_pb2.ModelConfig,
    *,
    arguments: Sequence[str],
    output_count: int,
    served_shapes: Collection[Shapes],
) -> list[str]:
    """Returns what is wrong, nothing if all is well.

    `arguments` are those of the TorchScript's forward, less self; `output_count` is how many
    tensors it returns.
    """
    return [
        *_backend(config),
        *_inputs([entry.name for entry in config.input], arguments),
        *_outputs([entry.name for entry in config.output], output_count),
        *_data_types(config),
        *_batching(config),
        *_warm_ups(config, served_shapes),
    ]


def _backend(config: model_config_pb2.ModelConfig) -> Iterator[str]:
    if config.backend != "pytorch":
        yield f"backend is {config.backend!r}, not 'pytorch'"
    if config.default_model_filename not in ("", "model.pt"):
        yield f"the file is {config.default_model_filename}, not 1/model.pt"


def _inputs(names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    by_position = [_position(name) for name in names]
    if sorted(names) != sorted(arguments) and by_position != list(range(len(arguments))):
        yield f"inputs {list(names)} are neither forward's {list(arguments)} nor NAME__0 and on"


def _outputs(names: Sequence[str], output_count: int) -> Iterator[str]:
    if [_position(name) for name in names] != list(range(output_count)):
        yield f"outputs {list(names)} are not {output_count} of NAME__0 and on, in order"


def _position(name: str) -> int | None:
    match = re.fullmatch(r".+__(\d+)", name)
    return int(match[1]) if match else None


def _data_types(config: model_config_pb2.ModelConfig) -> Iterator[str]:
    for entry in (*config.input, *config.output):
        if model_config_pb2.DataType.Name(entry.data_type) not in _DATA_TYPES:
            yield f"{entry.name} is of a type that torch does not have"


def _batching(config: model_config_pb2.ModelConfig) -> Iterator[str]:
    if config.max_batch_size < 1:
        yield "max_batch_size is 0"
    if not config.HasField("dynamic_batching"):
        yield "there is no dynamic batching"
        return
    policy = config.dynamic_batching.default_queue_policy
    if policy.max_queue_size < 1:
        yield "the queue has no bound"
    if policy.default_timeout_microseconds < 1 or policy.timeout_action != policy.REJECT:
        yield "a request may wait in the queue for ever"
    if not policy.allow_timeout_override:
        yield "a caller's own deadline does not count in the queue"


def _warm_ups(
    config: model_config_pb2.ModelConfig, served_shapes: Collection[Shapes]
) -> Iterator[str]:
    warm = [
        {name: tuple(tensor.dims) for name, tensor in warm_up.inputs.items()}
        for warm_up in config.model_warmup
    ]
    for shapes in served_shapes:
        if shapes not in warm:
            yield f"no warm-up of {dict(shapes)}"
    allowed = {entry.name: tuple(entry.dims) for entry in config.input}
    types = {entry.name: entry.data_type for entry in config.input}
    for warm_up in config.model_warmup:
        if not 1 <= warm_up.batch_size <= config.max_batch_size:
            yield f"{warm_up.name} has a batch of {warm_up.batch_size}"
        if warm_up.inputs.keys() != allowed.keys():
            yield f"{warm_up.name} has inputs {sorted(warm_up.inputs)}"
            continue
        for name, tensor in warm_up.inputs.items():
            if not _fits(tuple(tensor.dims), allowed[name]):
                yield f"{warm_up.name} has {name} of {list(tensor.dims)}"
            if tensor.data_type != types[name]:
                yield f"{warm_up.name} has {name} of another type"


def _fits(dims: Dims, allowed: Dims) -> bool:
    return len(dims) == len(allowed) and all(
        size > 0 and limit in (-1, size) for size, limit in zip(dims, allowed, strict=True)
    )
