"""VisualBERT's folder gives the match logit that transformers' class gives."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tandem.model_io.pictures.image_rules import BoxNumbers
from tandem.modeling.families.published_model import RegionJointParts
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
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
