"""A text tower of sentence-transformers is served with the image tower that the user names."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_formats import DIM, published_text_tower, write_modules
from tests.support.modeling.published_pairs import change_json

Published = Callable[[str], Path]
IDS = torch.tensor([[2, 4, 5, 9, 3], [2, 10, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
ROUTER = {"path": "", "type": "sentence_transformers.models.Router"}


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


def test_settings_of_the_library_are_read(tower: Path, published: Published) -> None:
    change_json(tower / "sentence_bert_config.json", max_seq_length=20, do_lower_case=True)
    (tower / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "two "}, "default_prompt_name": "query"})
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
        (lambda f: (f / "modules.json").write_text("{}"), "not a list of modules"),
        (lambda f: change_json(f / "1_Pooling/config.json", pooling_mode_max_tokens=True), "pools"),
        (lambda f: change_json(f / "1_Pooling/config.json", include_prompt=False), "its prompt"),
        (lambda f: change_json(f / "2_Dense/config.json", in_features=31), "after 32"),
        (lambda f: change_json(f / "2_Dense/config.json", out_features=31), "are others"),
        (lambda f: change_json(f / "2_Dense/config.json", activation_function="x.Odd"), "Odd"),
        (lambda f: change_json(f / "config.json", model_type="t5"), "there are bert, distilbert"),
        (lambda f: write_modules(f, [ROUTER]), "Router"),
    ],
)
def test_other_steps_are_refused_by_name(
    tower: Path, published: Published, change: Callable[[Path], object], told: str
) -> None:
    change(tower)
    with pytest.raises(PublishedCheckpointInvalid, match=told):
        read_published_model(tower, published("clip"))
