"""Checkpoints of the zoo: whole, named, and refused where another kind is meant."""

import json
from pathlib import Path

import pytest
import torch

from tandem.lab.zoo.checkpoint import is_zoo_checkpoint, load_zoo_checkpoint
from tandem.modeling.checkpoint import load_checkpoint
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint
from tests.support.zoo.tiny_zoo import save_tiny_zoo, tiny_texts, tiny_tokens


@torch.inference_mode()
def test_a_checkpoint_equals_its_model(tmp_path: Path) -> None:
    """Rounded to float16."""
    model = save_tiny_zoo(tmp_path, "vse_pp")

    loaded = load_zoo_checkpoint(tmp_path).model

    assert loaded.zoo == model.zoo
    for ours, theirs in zip(loaded.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs.half().float())
    (ids, mask), tokens = tiny_texts(), tiny_tokens()
    assert torch.allclose(
        loaded.match_logits(ids, mask, tokens), model.match_logits(ids, mask, tokens), atol=1e-2
    )


def test_kinds_of_checkpoints_are_distinguished(tmp_path: Path) -> None:
    """Each reader names the other's."""
    save_tiny_zoo(tmp_path / "zoo", "vse_pp")
    save_tiny_checkpoint(tmp_path / "joint")

    assert is_zoo_checkpoint(tmp_path / "zoo")
    assert not is_zoo_checkpoint(tmp_path / "joint")
    with pytest.raises(ValueError, match='is a model of the zoo \\("vse_pp"\\)'):
        load_checkpoint(tmp_path / "zoo")
    with pytest.raises(ValueError, match="is not a model of the zoo; tandem train zoo makes one"):
        load_zoo_checkpoint(tmp_path / "joint")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "vse_minus"}, "no model 'vse_minus'"),
        ({"width": 24}, "the weights do not fit config.json"),
        ({"model": "camera", "width": 104}, "width 104 does not divide into camera's heads"),
        ({"depth": 3}, "unexpected keyword argument 'depth'"),
    ],
)
def test_a_damaged_configuration_is_refused(
    tmp_path: Path, change: dict[str, object], named: str
) -> None:
    save_tiny_zoo(tmp_path, "vse_pp")
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    fields["zoo"] |= change
    path.write_text(json.dumps(fields))

    with pytest.raises(ValueError, match=named):
        load_zoo_checkpoint(tmp_path)
