"""Models in open_clip's format give what the same weights give in that of transformers."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tandem.model_io.pictures.image_rules import Filter, Fit, Transparency
from tandem.modeling.families.published_model import BiEncoderParts
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.library_embeddings import pixel_rules
from tests.support.modeling.published_formats import (
    published_open_clip,
    published_open_clip_xlm_roberta,
)
from tests.support.modeling.published_pairs import SIZE, write_json

IDS = torch.tensor([[518, 513, 516, 519], [518, 320, 519, 519]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def _pixels() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (3, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)


def _parts(folder: Path) -> BiEncoderParts:
    parts = read_published_model(folder).bi_encoder
    assert parts is not None
    return parts


@pytest.mark.parametrize("has_text_class", [False, True])
def test_weights_are_read_by_open_clips_names(tmp_path: Path, has_text_class: bool) -> None:
    folder, twin = tmp_path / "open", tmp_path / "twin"
    folder.mkdir()
    published_open_clip(folder, twin, has_text_class=has_text_class)
    ours, theirs = _parts(folder), _parts(twin)
    with torch.inference_mode():
        torch.testing.assert_close(ours.embed_text(IDS, MASK), theirs.embed_text(IDS, MASK))
        pixels = _pixels()
        torch.testing.assert_close(ours.embed_image(pixels), theirs.embed_image(pixels))
    # open_clip drops the alpha channel, and transformers blends it onto white.
    assert pixel_rules(ours) == replace(pixel_rules(theirs), transparency=Transparency.IGNORE)
    assert ours.text == theirs.text
    model = read_published_model(folder)
    assert (model.family, model.architecture, model.licence) == ("open_clip", "CLIPModel", "mit")
    assert "open_clip_model.safetensors" in model.files_sha256


def test_an_xlm_roberta_is_pooled_over_its_mask(tmp_path: Path) -> None:
    encoder, projection = published_open_clip_xlm_roberta(tmp_path)
    ours, theirs = _parts(tmp_path), _parts(tmp_path / "twin")
    ids = torch.tensor([[0, 134, 4, 40, 2], [0, 134, 2, 1, 1]])
    with torch.inference_mode():
        pixels = _pixels()
        torch.testing.assert_close(ours.embed_image(pixels), theirs.embed_image(pixels))
        for row, length in ((0, 5), (1, 3)):
            alone = ids[row : row + 1, :length]
            states = encoder(input_ids=alone, attention_mask=torch.ones_like(alone))
            expected = projection(states.last_hidden_state.mean(dim=1))
            expected = torch.nn.functional.normalize(expected, dim=-1)
            got = ours.embed_text(ids, (ids != 1).long())[row : row + 1]
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "open"
    folder.mkdir()
    published_open_clip(folder, tmp_path / "twin")
    return folder


def _change(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "open_clip_config.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def test_pictures_are_squashed_if_the_configuration_says_so(folder: Path) -> None:
    _change(
        folder,
        lambda fields: fields.update(
            preprocess_cfg={"resize_mode": "squash", "interpolation": "bilinear", "size": [32, 32]}
        ),
    )
    image = _parts(folder).image
    assert (image.fit, image.filter) == (Fit.SQUASH, Filter.BILINEAR)


def test_settings_of_training_are_passed_over(folder: Path) -> None:
    def add(fields: dict[str, Any]) -> None:
        fields["model_cfg"]["vision_cfg"] |= {"patch_dropout": 0.5, "pool_type": "tok"}
        fields["model_cfg"]["vision_cfg"] |= {"timm_model_name": None, "no_ln_pre": False}
        fields["model_cfg"]["vision_cfg"] |= {"timm_pool": "avg", "act_kwargs": {}}
        fields["model_cfg"]["text_cfg"] |= {"hf_tokenizer_name": "x", "proj_bias": False}
        fields["model_cfg"] |= {"init_logit_bias": -10, "custom_text": False, "output_dict": True}

    _change(folder, add)
    read_published_model(folder)


def test_scale_and_bias_of_logits_change_nothing(folder: Path) -> None:
    """SigLIP's loss has a bias, and some files have the scale as a list of one."""
    before = _parts(folder)
    path = folder / "open_clip_model.safetensors"
    weights = load_file(path)
    weights |= {"logit_bias": torch.tensor(-10.0), "logit_scale": torch.ones(1)}
    save_file(weights, path)
    with torch.inference_mode():
        for module in ("embed_text", "embed_image"):
            inputs = (IDS, MASK) if module == "embed_text" else (_pixels(),)
            made, expected = (getattr(each, module)(*inputs) for each in (_parts(folder), before))
            torch.testing.assert_close(made, expected)


def test_one_mean_stands_for_three_colours(folder: Path) -> None:
    expected = []
    for wanted in ({"mean": 0.5, "std": 0.25}, {"mean": [0.5] * 3, "std": [0.25] * 3}, None, {}):
        fields = json.loads((folder / "open_clip_config.json").read_text())
        write_json(folder / "open_clip_config.json", fields | {"preprocess_cfg": wanted})
        with torch.inference_mode():
            expected.append(_parts(folder).embed_image(_pixels()))
    torch.testing.assert_close(expected[0], expected[1])
    torch.testing.assert_close(expected[2], expected[3])
    assert (expected[1] - expected[2]).abs().max() > 1e-3


def test_a_configuration_of_another_library_is_ignored(folder: Path) -> None:
    (folder / "config.json").write_text('{"architecture": "vit_base_patch16", "num_features": 3}')
    assert read_published_model(folder).family == "open_clip"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: f["model_cfg"]["vision_cfg"].update(timm_model_name="vit"), "timm_model_name"),
        (lambda f: f["model_cfg"]["vision_cfg"].update(layers=[3, 4, 6, 3]), "num_hidden_layers"),
        (lambda f: f["model_cfg"]["vision_cfg"].update(pool_type="avg"), "pool_type"),
        (lambda f: f["model_cfg"]["text_cfg"].update(no_causal_mask=True), "no_causal_mask"),
        (lambda f: f["model_cfg"]["text_cfg"].update(hf_model_name="roberta-base"), "xlm-roberta"),
        (lambda f: f["preprocess_cfg"].update(resize_mode="longest"), "shortest. or .squash"),
        (lambda f: f["preprocess_cfg"].update(size=64), "size is 64, and only 32"),
        (lambda f: f["model_cfg"].update(multimodal_cfg={"width": 8}), "multimodal_cfg"),
        (lambda f: f["model_cfg"].pop("text_cfg"), "KeyError .text_cfg"),
        (lambda f: f["model_cfg"]["vision_cfg"].update(layers=3), "missing vision_model"),
    ],
)
def test_a_setting_without_a_place_is_refused_by_name(
    folder: Path, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    _change(folder, change)
    with pytest.raises(PublishedCheckpointInvalid, match=told):
        read_published_model(folder)


def test_a_projection_that_is_no_name_is_refused(tmp_path: Path) -> None:
    published_open_clip_xlm_roberta(tmp_path)
    _change(tmp_path, lambda f: f["model_cfg"]["text_cfg"].update(hf_proj_type=["mlp"]))
    with pytest.raises(PublishedCheckpointInvalid, match=r"hf_proj_type is .*mlp"):
        read_published_model(tmp_path)
