"""Vision networks of others as a source of image tokens, with their weights in our checkpoint."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.export.export import export_model
from tandem.modeling.families.vision_folder import PublishedVision
from tandem.modeling.image_sources.vision_tower import VisionTower
from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_pairs import change_json
from tests.support.modeling.published_vision import SHAPES, published_vision
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer


def config_of(vision: PublishedVision) -> JointConfig:
    """Returns a tiny joint model's shape over the network."""
    return JointConfig(
        vocabulary_size=tiny_tokenizer().get_vocab_size(),
        width=16,
        layer_count=1,
        head_count=2,
        image_size=vision.image_size,
        image_source="vision_tower",
        picture_fit="squash",
        vision=vision.vision,
        vision_token_count=vision.token_count,
        vision_token_width=vision.token_width,
    )


def started(folder: Path) -> JointModel:
    """Returns a model that begins with the folder's network."""
    vision = PublishedVision.open(str(folder))
    model = JointModel(config_of(vision)).eval()
    assert isinstance(model.image_backbone, VisionTower)
    vision.start(model.image_backbone)
    return model


@torch.inference_mode()
@pytest.mark.parametrize("family", SHAPES)
def test_tokens_are_the_published_states(tmp_path: Path, family: str) -> None:
    side = published_vision(tmp_path, family)
    change_json(tmp_path / "config.json", return_dict=False)  # what a caller once set
    model = started(tmp_path)
    pixels = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])
    scaled = ((pixels / 255 - mean) / std).permute(0, 3, 1, 2)
    expected = side(pixel_values=scaled).last_hidden_state
    if expected.ndim == 4:
        expected = expected.flatten(2).transpose(1, 2)

    tokens = model.image_backbone(pixels)

    assert tokens.shape[1:] == SHAPES[family]
    assert (model.config.image_token_count, model.config.token_width) == SHAPES[family]
    assert tokens.dtype is torch.float16
    torch.testing.assert_close(tokens.float(), expected, atol=5e-3, rtol=5e-3)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("fields", "factor", "is_normalised"),
    [
        ({"rescale_factor": 1 / 127.5}, 1 / 127.5, True),
        ({"do_rescale": False}, 1.0, True),
        ({"do_normalize": False}, 1 / 255, False),
    ],
)
def test_levels_are_the_processors(
    tmp_path: Path, fields: dict[str, object], factor: float, is_normalised: bool
) -> None:
    side = published_vision(tmp_path, "vit")
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    pixels = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])
    scaled = pixels * factor
    scaled = (scaled - mean) / std if is_normalised else scaled

    tokens = started(tmp_path).image_backbone(pixels)

    expected = side(pixel_values=scaled.permute(0, 3, 1, 2)).last_hidden_state
    torch.testing.assert_close(tokens.float(), expected, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("family", ["vit", "convnext"])
def test_a_checkpoint_holds_the_network(tmp_path: Path, family: str) -> None:
    published_vision(tmp_path / "published", family)
    model = started(tmp_path / "published")
    save_checkpoint(tmp_path / "ours", model, tiny_tokenizer(), {})
    for file in (tmp_path / "published").iterdir():
        file.unlink()

    loaded = load_checkpoint(tmp_path / "ours").model
    manifest = export_model(tmp_path / "ours", tmp_path / "repository", Precision.BF16)

    pixels = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    with torch.inference_mode():
        torch.testing.assert_close(
            loaded.image_backbone(pixels), model.image_backbone(pixels), atol=2e-2, rtol=2e-2
        )
    assert (manifest.image_token_count, manifest.token_width) == SHAPES[family]
    assert (manifest.image.size, manifest.image.fit) == (64, "squash")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"model_type": "bert"}, 'model_type "bert" is not a vision network'),
        ({"auto_map": {"AutoModel": "x.Y"}}, "asks for code of the checkpoint"),
        ({"num_hidden_layers": 3}, "the weights are not those of ViTModel: missing"),
        ({"patch_size": 128}, "it gives no image tokens of 64 pixels"),
        ({"hidden_size": 48}, "weights cannot be read"),
    ],
)
def test_a_folder_without_a_network_is_refused(
    tmp_path: Path, edit: dict[str, object], why: str
) -> None:
    published_vision(tmp_path, "vit")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))

    with pytest.raises(PublishedCheckpointInvalid, match=why):
        started(tmp_path)


def test_a_weight_that_is_nan_is_refused(tmp_path: Path) -> None:
    published_vision(tmp_path, "vit")
    before = PublishedVision.open(str(tmp_path)).weights_sha256()
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    name = next(each for each in weights if "layernorm" in each)
    weights[name] = weights[name] + 1
    save_file(weights, path)
    assert PublishedVision.open(str(tmp_path)).weights_sha256() != before
    weights[name][0] = torch.nan
    save_file(weights, path)

    with pytest.raises(PublishedCheckpointInvalid, match="NaN or infinite"):
        started(tmp_path)


def test_a_shape_needs_its_network(tmp_path: Path) -> None:
    published_vision(tmp_path, "vit")
    config = config_of(PublishedVision.open(str(tmp_path)))

    with pytest.raises(ValueError, match="vision: image_source vision_tower needs it"):
        replace(config, vision=None)
    with pytest.raises(ValueError, match="and no other has it"):
        replace(config, image_source="grid")
