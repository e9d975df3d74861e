"""Every config.pbtxt, committed or exported, keeps the native libtorch backend's rules."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tritonclient.grpc.model_config_pb2 import TYPE_BF16, ModelConfig

from tandem.model_io.repository.config_pbtxt import max_batch_size, pair_batch_size
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    Manifest,
    config_file,
    model_file,
)
from tandem.model_io.repository.served_functions import (
    PAIR_ROLES,
    TEXT_ROLES,
    Role,
    ServedFunctions,
    TritonModel,
)
from tests.support.repository.made_manifest import made_manifest
from tests.support.repository.native_rules import Shapes, read_config, violations

COMMITTED = Path(__file__).parents[3] / "model_repository"

# forward's of ImageBackbone and JointEncoder; the exported files give theirs below.
ARGUMENTS = {
    IMAGE_BACKBONE: ("pixels",),
    JOINT_ENCODER: ("input_ids", "text_mask", "image_tokens", "image_mask"),
}
BUCKETS = (8, 12, 16, 24, 32, 48, 64)
OUTPUT_COUNTS = {IMAGE_BACKBONE: 1, JOINT_ENCODER: 2}


def served_shapes(name: str, *, width: int) -> list[Shapes]:
    """Returns the shapes that ServedModel sends: texts alone, images alone, pairs."""
    if name == IMAGE_BACKBONE:
        return [{"INPUT__0": (112, 112, 3)}]
    lengths = [(1, 49), *((text, image) for text in BUCKETS for image in (1, 49))]
    return [
        {
            "INPUT__0": (text,),
            "INPUT__1": (text,),
            "INPUT__2": (image, width),
            "INPUT__3": (image,),
        }
        for text, image in lengths
    ]


def wrong_with(name: str, config: ModelConfig, *, width: int) -> list[str]:
    """Returns what breaks the rules."""
    return violations(
        config,
        arguments=ARGUMENTS[name],
        output_count=OUTPUT_COUNTS[name],
        served_shapes=served_shapes(name, width=width),
    )


@pytest.mark.parametrize("name", [IMAGE_BACKBONE, JOINT_ENCODER])
def test_a_committed_config_keeps_the_rules(name: str) -> None:
    config = read_config(config_file(COMMITTED, name))

    assert config.name == name
    width = read_config(config_file(COMMITTED, JOINT_ENCODER)).output[0].dims[0]
    assert wrong_with(name, config, width=width) == []


@pytest.mark.parametrize(("embedding_dim", "row_count"), [(192, 24), (384, 6), (768, 4)])
def test_a_batch_is_smaller_the_wider_the_model(
    tiny_manifest: Manifest, embedding_dim: int, row_count: int
) -> None:
    """By its own width: image tokens, here a patch's bare pixels, may have another."""
    manifest = replace(tiny_manifest, embedding_dim=embedding_dim, token_width=3 * 16 * 16)

    assert pair_batch_size(manifest) == row_count


def test_two_encoders_count_by_the_wider_of_their_widths() -> None:
    """BLIP's embeddings have 256 dimensions, and it computes in 768."""
    functions = ServedFunctions(
        embed_text="text_encoder",
        embed_image=("image_encoder",),
        image_tokens="image_encoder",
        score_pair="pair_encoder",
    )
    outputs = {
        "text_encoder": (TEXT_ROLES, (Role.EMBEDDING,)),
        "image_encoder": ((Role.PIXELS,), (Role.EMBEDDING, Role.IMAGE_TOKENS)),
        "pair_encoder": (PAIR_ROLES, (Role.MATCH_LOGIT,)),
    }
    models = {
        name: TritonModel(sha256="", inputs=inputs, outputs=given)
        for name, (inputs, given) in outputs.items()
    }
    blip = made_manifest(
        embedding_dim=256, token_width=768, functions=functions, models=models, cls_id=None
    )

    assert max_batch_size(blip, "pair_encoder") == 4
    assert max_batch_size(blip, "image_encoder") == 4
    assert max_batch_size(replace(blip, token_width=96), "pair_encoder") == 14


@pytest.mark.parametrize("name", [IMAGE_BACKBONE, JOINT_ENCODER])
def test_an_exported_model_keeps_the_rules(
    tiny_repository: Path, tiny_manifest: Manifest, name: str
) -> None:
    config = read_config(config_file(tiny_repository, name))
    arguments, output_count = signature(model_file(tiny_repository, name))

    assert arguments == ARGUMENTS[name]
    assert output_count == OUTPUT_COUNTS[name]
    assert config.name == name
    assert wrong_with(name, config, width=tiny_manifest.token_width) == []


def test_a_config_tells_the_manifests_shapes(
    tiny_repository: Path, tiny_manifest: Manifest
) -> None:
    backbone = read_config(config_file(tiny_repository, IMAGE_BACKBONE))
    encoder = read_config(config_file(tiny_repository, JOINT_ENCODER))

    size = tiny_manifest.picture.size
    assert list(backbone.input[0].dims) == [size, size, 3]
    assert list(backbone.output[0].dims) == [
        tiny_manifest.image_token_count,
        tiny_manifest.token_width,
    ]
    assert [list(output.dims) for output in encoder.output] == [[tiny_manifest.embedding_dim], [1]]


def signature(path: Path) -> tuple[tuple[str, ...], int]:
    """Returns the argument names of a TorchScript's forward and how many tensors it returns."""
    schema = torch.jit.load(str(path)).forward.schema
    [returned] = schema.returns
    is_one = isinstance(returned.type, torch._C.TensorType)
    arguments = tuple(argument.name for argument in schema.arguments)
    return arguments[1:], 1 if is_one else len(returned.type.elements())


def rename_output(config: ModelConfig) -> None:
    config.output[0].name = "embedding"


def rename_file(config: ModelConfig) -> None:
    config.default_model_filename = "model.pt2"


def unbound_queue(config: ModelConfig) -> None:
    config.dynamic_batching.default_queue_policy.ClearField("max_queue_size")


def use_bfloat(config: ModelConfig) -> None:
    config.output[0].data_type = TYPE_BF16


def forget_a_warm_up(config: ModelConfig) -> None:
    kept = [each for each in config.model_warmup if each.inputs["INPUT__0"].dims[0] != 32]
    config.ClearField("model_warmup")
    config.model_warmup.extend(kept)


def warm_up_too_many(config: ModelConfig) -> None:
    config.model_warmup[0].batch_size = 129


@pytest.mark.parametrize(
    "sabotage",
    [
        rename_output,
        rename_file,
        unbound_queue,
        use_bfloat,
        forget_a_warm_up,
        warm_up_too_many,
    ],
)
def test_the_check_sees_a_broken_rule(
    tiny_repository: Path, tiny_manifest: Manifest, sabotage: Callable[[ModelConfig], None]
) -> None:
    """Positive control: each way to break a rule is found."""
    config = read_config(config_file(tiny_repository, JOINT_ENCODER))
    sabotage(config)

    assert wrong_with(JOINT_ENCODER, config, width=tiny_manifest.token_width)
