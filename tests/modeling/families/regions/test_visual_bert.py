"""VisualBERT's folder gives the match logit that transformers' class gives."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tandem.modeling.families.published_model import RegionJointParts
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tandem.pictures.image_rules import BoxNumbers
from tests.support.modeling.exported_twice import exported, largest_difference, traced
from tests.support.modeling.pair_inputs import pairs
from tests.support.modeling.published_pairs import change_json

Published = Callable[[str], Path]

FEATURES = 24


@pytest.fixture
def folder(published: Published, tmp_path: Path) -> Path:
    """A folder that a test may change."""
    shutil.copytree(published("visual_bert"), tmp_path / "visual_bert")
    return tmp_path / "visual_bert"


def test_its_rules_read_features_and_no_boxes(published: Published) -> None:
    model = read_published_model(published("visual_bert"))
    parts = _parts(published("visual_bert"))
    assert (model.family, model.bi_encoder, model.cross_encoder) == ("visual_bert", None, None)
    assert parts.has_pairs
    assert parts.regions.box_numbers is BoxNumbers.NONE
    assert parts.regions.vector_width == FEATURES
    assert "not for retrieval" in model.notes[0]


@torch.inference_mode()
def test_a_pair_has_the_logit_that_transformers_gives(published: Published) -> None:
    from transformers import VisualBertForPreTraining

    library = VisualBertForPreTraining.from_pretrained(published("visual_bert")).eval()
    ids, mask, regions, region_mask = _inputs(5, 9, 6)

    _, logit = _parts(published("visual_bert")).joint(ids, mask, regions, region_mask)

    scores = library(
        input_ids=ids,
        attention_mask=mask,
        visual_embeds=regions.float(),
        visual_attention_mask=region_mask,
        visual_token_type_ids=torch.ones_like(region_mask),
    ).seq_relationship_logits
    # The first class is the match.
    assert torch.allclose(logit, scores[:, :1] - scores[:, 1:], atol=1e-5)
    assert logit.abs().min() > 1e-3


@torch.inference_mode()
def test_words_and_regions_count_and_padding_does_not(published: Published) -> None:
    joint = _parts(published("visual_bert")).joint
    ids, mask, regions, region_mask = _inputs(4, 9, 6)
    _, logit = joint(ids, mask, regions, region_mask)

    garbage = torch.where(region_mask[:, :, None] == 0, torch.full_like(regions, 9), regions)
    assert torch.allclose(joint(ids, mask, garbage, region_mask)[1], logit)
    assert not torch.equal(garbage, regions)
    other_regions = joint(ids, mask, regions.roll(1, 0), region_mask)[1]
    other_texts = joint(ids.roll(1, 0), mask.roll(1, 0), regions, region_mask)[1]
    assert (other_regions - logit).abs().min() > 1e-4
    assert (other_texts - logit).abs().min() > 1e-4


def test_it_is_served_unchanged(published: Published) -> None:
    joint = _parts(published("visual_bert")).joint
    sizes = ((1, 5, 3), (20, 11, 7), (3, 7, 1))

    forms = (
        traced(joint, _inputs(2, 7, 6)),
        exported(joint, _inputs(2, 7, 6), ((0, 1),) * 4),
    )

    for form in forms:
        assert largest_difference(form, joint, (_inputs(*size) for size in sizes)) < 1e-6


@torch.inference_mode()
def test_a_pair_scores_the_same_alone_and_among_twenty(published: Published) -> None:
    joint = _parts(published("visual_bert")).joint
    rows = _inputs(20, 9, 6)

    _, together = joint(*rows)
    alone = torch.cat([joint(*(each[row : row + 1] for each in rows))[1] for row in range(20)])

    assert (together - alone).abs().max() < 1e-4
    assert together.std() > 1e-3


def test_without_its_head_it_is_a_bi_encoder(folder: Path) -> None:
    _change_weights(
        folder,
        lambda weights: {
            name: weight
            for name, weight in weights.items()
            if not name.startswith("cls.seq_relationship")
        },
    )
    assert not _parts(folder).has_pairs


def test_regions_that_pass_the_layers_by_are_refused(folder: Path) -> None:
    change_json(folder / "config.json", bypass_transformer=True)
    with pytest.raises(PublishedCheckpointInvalid, match="bypass_transformer"):
        read_published_model(folder)


def _parts(folder: Path) -> RegionJointParts:
    parts = read_published_model(folder).region_joint
    assert parts is not None
    return parts


def _inputs(batch: int, length: int, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    ids, mask, regions, region_mask = pairs(batch, length, count, FEATURES)
    region_mask[: batch // 2, max(1, count // 2) :] = 0
    return ids, mask, regions, region_mask


def _change_weights(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)
