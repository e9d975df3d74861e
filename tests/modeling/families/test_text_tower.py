"""A text tower of sentence-transformers is served with the image tower that the user names."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_formats import DIM, published_text_tower, write_modules
from tests.support.modeling.published_pairs import change_json

Published = Callable[[str], Path]
IDS = torch.tensor([[2, 4, 5, 9, 3], [2, 10, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    folder = tmp_path / "tower"
    folder.mkdir()
    published_text_tower(folder)
    return folder


def test_it_embeds_as_its_modules_say(tmp_path: Path, published: Published) -> None:
    encoder, layer = published_text_tower(tmp_path)
    image = read_published_model(published("clip"))
    model = read_published_model(tmp_path, published("clip"))
    assert model.bi_encoder is not None
    assert image.bi_encoder is not None
    with torch.inference_mode():
        states = encoder(input_ids=IDS, attention_mask=MASK).last_hidden_state
        pooled = torch.stack([states[0].mean(dim=0), states[1, :3].mean(dim=0)])
        expected = torch.nn.functional.normalize(layer(pooled), dim=-1)
        got = model.bi_encoder.embed_text(IDS, MASK)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
        pixels = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
        assert torch.equal(
            model.bi_encoder.embed_image(pixels), image.bi_encoder.embed_image(pixels)
        )
    assert model.bi_encoder.image == image.bi_encoder.image
    assert model.bi_encoder.embedding_dim == DIM
    assert model.bi_encoder.text.max_tokens == 40
    assert model.licence == "apache-2.0 and mit"
    assert {"2_Dense/pytorch_model.bin", "image_encoder/model.safetensors"} <= set(
        model.files_sha256
    )


def test_a_length_is_unit_before_a_layer_that_adds(tower: Path, published: Published) -> None:
    """Normalize in the middle changes what a layer with a bias gives."""
    kind = "sentence_transformers.models"
    (tower / "2_Normalize").mkdir()
    (tower / "2_Dense").rename(tower / "3_Dense")
    change_json(tower / "3_Dense/config.json", bias=True)
    weights = torch.load(tower / "3_Dense/pytorch_model.bin", weights_only=True)
    weights["linear.bias"] = torch.linspace(-1, 1, DIM)
    torch.save(weights, tower / "3_Dense/pytorch_model.bin")
    paths = ("", "1_Pooling", "2_Normalize", "3_Dense")
    kinds = ("Transformer", "Pooling", "Normalize", "Dense")
    steps = [
        {"path": path, "type": f"{kind}.{name}"} for path, name in zip(paths, kinds, strict=True)
    ]
    write_modules(tower, steps)

    parts = read_published_model(tower, published("clip")).bi_encoder

    assert parts is not None
    encoder: Any = parts.embed_text.encoder
    with torch.inference_mode():
        states = encoder(input_ids=IDS[:1], attention_mask=MASK[:1]).last_hidden_state
        unit = torch.nn.functional.normalize(states.mean(dim=1), dim=-1)
        wanted = unit @ weights["linear.weight"].T + weights["linear.bias"]
        got = parts.embed_text(IDS[:1], MASK[:1])
    torch.testing.assert_close(got, torch.nn.functional.normalize(wanted, dim=-1))


def test_it_cannot_be_served_alone(tower: Path) -> None:
    with pytest.raises(PublishedCheckpointInvalid, match="--image-encoder"):
        read_published_model(tower)


def test_an_image_tower_of_another_width_is_refused(tower: Path, published: Published) -> None:
    with pytest.raises(PublishedCheckpointInvalid, match="24 dimensions and the image encoder 32"):
        read_published_model(tower, published("siglip"))


def test_a_whole_model_accepts_no_other_image_tower(published: Published) -> None:
    with pytest.raises(PublishedCheckpointInvalid, match="of its own"):
        read_published_model(published("clip"), published("siglip"))


def test_a_clip_in_a_folder_of_modules_is_a_clip(tmp_path: Path, published: Published) -> None:
    """As clip-ViT-B-32 of sentence-transformers: the card is outside, the model inside."""
    inner = tmp_path / "0_CLIPModel"
    shutil.copytree(published("clip"), inner)
    (inner / "README.md").rename(tmp_path / "README.md")
    kind = "sentence_transformers.models.CLIPModel"
    write_modules(tmp_path, [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": kind}])
    model = read_published_model(tmp_path)
    assert (model.family, model.licence) == ("clip", "mit")
    assert {"modules.json", "0_CLIPModel/config.json"} <= set(model.files_sha256)


def test_a_clip_is_one_step_of_newer_files(tmp_path: Path, published: Published) -> None:
    """sentence-transformers 5.4 and later write Transformer where there was CLIPModel."""
    shutil.copytree(published("clip"), tmp_path, dirs_exist_ok=True)
    kinds = ("base.modules.transformer.Transformer", "base.modules.normalize.Normalize")
    steps = [
        {"path": path, "type": f"sentence_transformers.{kind}"}
        for path, kind in zip(("", "1_Normalize"), kinds, strict=True)
    ]
    write_modules(tmp_path, steps)
    assert read_published_model(tmp_path).family == "clip"


def test_what_follows_a_clip_is_not_passed_over(tmp_path: Path, published: Published) -> None:
    shutil.copytree(published("clip"), tmp_path, dirs_exist_ok=True)
    kinds = ("CLIPModel", "Dense")
    steps = [{"path": "", "type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    write_modules(tmp_path, steps)
    with pytest.raises(PublishedCheckpointInvalid, match=r"has .Dense. after a CLIPModel"):
        read_published_model(tmp_path)


def test_settings_of_the_library_are_read(tower: Path, published: Published) -> None:
    change_json(tower / "sentence_bert_config.json", max_seq_length=20, do_lower_case=True)
    (tower / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "Two "}, "default_prompt_name": "query"})
    )
    before = read_published_model(tower, published("clip")).bi_encoder
    assert before is not None
    assert before.text == replace(
        before.text, max_tokens=20, is_lower_case=True, prompt="two ", lengths=(8, 12, 16, 20)
    )


def _module(kind: str) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        rows = json.loads((folder / "modules.json").read_text())
        rows[2]["type"] = kind
        write_modules(folder, rows)

    return changed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_module("my_code.Dense"), "never run"),
        (_module("sentence_transformers.models.LSTM"), "LSTM"),
        (lambda f: change_json(f / "1_Pooling/config.json", pooling_mode_max_tokens=True), "pools"),
        (lambda f: change_json(f / "2_Dense/config.json", in_features=31), "in_features is 31"),
        # Of another package the library takes Tanh instead.
        (
            lambda f: change_json(f / "2_Dense/config.json", activation_function="my.GELU"),
            "my.GELU",
        ),
        (lambda f: change_json(f / "config.json", model_type="t5"), "only .bert. or .distilbert"),
    ],
)
def test_other_steps_are_refused_by_name(
    tower: Path, published: Published, change: Callable[[Path], object], told: str
) -> None:
    change(tower)
    with pytest.raises(PublishedCheckpointInvalid, match=told):
        read_published_model(tower, published("clip"))
