"""Two towers: BE first, then the matcher; held-out pictures, resume, and what is kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tandem.lab.training.optimisation import recipe_groups, tower_groups
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.recipes.recipe import (
    MatcherRecipe,
    Recipe,
    TowersRecipe,
    of_kind,
    on_corpus,
)
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.runs.run import check_unfinished
from tandem.lab.training.runs.run_state import RunStateInvalid
from tandem.lab.training.sources.record_source import RecordSource, divided
from tandem.lab.training.stages.matcher_stage import _reciprocal_rank, matching_loss
from tandem.lab.training.starting_model import starting_model
from tandem.lab.training.train import RunEnd, train
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.towers.two_towers import TwoTowers
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer
from tests.support.training.emoji_tuning import records
from tests.support.training.small_runs import Stopped, stop_at

# Most of a run here is the image tokens of these.
TRAIN = records("train", 100)


def tower_recipe(**changes: object) -> TowersRecipe:
    """Returns a recipe of a moment: a fresh small text tower over an untrained grid."""
    recipe = of_kind(
        TowersRecipe,
        tiny(1),
        name="towers",
        image_size=48,
        embedding_width=12,
        head_width=16,
        backbone_step_count=0,
        learns_temperature=True,
        round_count=6,
        softmax_round_count=6,
        dev_every_round_count=3,
        held_out_family_count=5,
        matcher_width=8,
        matcher_step_count=6,
        matcher_batch_size=8,
        matcher_neighbour_count=4,
    )
    return replace(on_corpus(recipe, "emoji"), **changes)  # type: ignore[arg-type]


def train_towers(recipe: Recipe, folder: Path, **options: object) -> RunEnd:
    """Trains on the first emoji, without progress unless it is given."""
    options.setdefault("progress", lambda *_: None)
    return train(recipe, RecordSource(TRAIN, ()), folder, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "own"),
    [
        ({}, ""),
        ({"matcher_has_towers": True, "matcher_layer_count": 1, "layer_count": 2}, ".tops."),
    ],
)
def test_the_towers_learn_first_and_then_the_matcher(
    tmp_path: Path, form: dict[str, object], own: str
) -> None:
    """The matcher's stage changes no tower that embeds, and chooses the cosine's weight."""
    changes = {**form, "word_drop_share": 0.2, "dropout": 0.1}
    train_towers(tower_recipe(**changes, matcher_step_count=0), tmp_path / "be")

    done = train_towers(tower_recipe(**changes), tmp_path / "both")

    before, after = (load_checkpoint(tmp_path / name) for name in ("be", "both"))
    weights, others = before.model.state_dict(), after.model.state_dict()
    changed = {name for name in weights if not torch.equal(weights[name], others[name])}
    learns = (".matcher.", own or ".matcher.", "cosine_weight")
    assert all(any(part in name for part in learns) for name in changed)
    assert any(".matcher." in name for name in changed)
    assert not own or any(own in name for name in changed)
    assert done.best.be_r1 is not None
    assert done.best.ce_r1 is not None
    assert done.before.recall.ce_r1 is None
    recipe = after.training["recipe"]
    assert (recipe["has_two_towers"], recipe["matcher_step_count"]) == (True, 6)
    assert after.training["dev_recall_percent"]["ce_r1"] == done.best.ce_r1
    lines = read_curve(tmp_path / "both")
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_run_stopped_in_its_matcher_trains_no_backbone_again(tmp_path: Path) -> None:
    recipe = tower_recipe(backbone_step_count=4, matcher_step_count=10)

    seen: list[tuple[str, int]] = []
    train_towers(recipe, tmp_path / "whole")
    with pytest.raises(Stopped):
        train_towers(
            recipe, tmp_path / "cut", progress=stop_at("matcher", 10), state_every_step_count=4
        )
    train_towers(recipe, tmp_path / "cut", resume=True, progress=lambda *now: seen.append(now[:2]))

    assert [step for name, step in seen if name == "backbone"] == [4]
    whole, cut = (load_checkpoint(tmp_path / name).model.state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_the_text_encoder_has_its_own_rate_and_can_be_frozen(tmp_path: Path) -> None:
    """Heads learn at theirs; the matcher learns nothing in the rounds."""
    encoder = starting_model(tower_recipe(), tmp_path, tiny_tokenizer)[0].joint_encoder
    assert isinstance(encoder, TwoTowers)
    recipe = tower_recipe(learning_rate=0.25, head_learning_rate=0.5)

    groups = recipe_groups(encoder, recipe)
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}  # type: ignore[attr-defined]

    assert {rates[id(p)] for p in encoder.text.tower.parameters()} == {0.25}
    assert {rates[id(p)] for p in encoder.image.parameters()} == {0.5}
    assert rates[id(encoder.log_scale)] == rates[id(encoder.text.project.weight)] == 0.5
    assert encoder.matcher is not None
    assert not {id(p) for p in encoder.matcher.parameters()} & rates.keys()
    encoder.matcher.requires_grad_(True)
    matcher_groups = tower_groups(encoder, recipe, 0.125)
    assert {group["lr"] for group in matcher_groups} == {0.125, 0.25, 0.5}
    frozen = recipe_groups(encoder, replace(recipe, has_frozen_text=True))
    assert {group["lr"] for group in frozen} == {0.5}


def joint_recipe(**changes: object) -> MatcherRecipe:
    """Returns a recipe whose matcher has its own last layer over trained towers."""
    parts = {"matcher_has_towers": True, "matcher_layer_count": 1, "matcher_step_count": 10}
    return of_kind(MatcherRecipe, tower_recipe(**parts), **changes)


def test_a_matcher_is_trained_over_towers_of_another_run(tmp_path: Path) -> None:
    """They stay to the bit, whatever matcher they had; a stopped run ends with the same weights."""
    train_towers(tower_recipe(layer_count=2), tmp_path / "be")

    stages: list[str] = []
    done = train_towers(
        joint_recipe(),
        tmp_path / "whole",
        init=tmp_path / "be",
        progress=lambda stage, *_: stages.append(stage),
    )
    stop = stop_at("matcher", 10)
    with pytest.raises(Stopped):
        train_towers(
            joint_recipe(),
            tmp_path / "cut",
            init=tmp_path / "be",
            progress=stop,
            state_every_step_count=4,
        )
    check_unfinished(tmp_path / "cut")
    train_towers(joint_recipe(), tmp_path / "cut", init=tmp_path / "be", resume=True)

    begun, whole, cut = (load_checkpoint(tmp_path / name) for name in ("be", "whole", "cut"))
    weights, ends = begun.model.state_dict(), whole.model.state_dict()
    embeds = [name for name in weights if ".matcher" not in name and "cosine_weight" not in name]
    assert len(embeds) > 30
    assert all(torch.equal(weights[name], ends[name]) for name in embeds)
    assert all(torch.equal(each, cut.model.state_dict()[name]) for name, each in ends.items())
    assert "encoder" not in stages
    assert done.best.be_r1 is not None
    assert done.best.ce_r1 is not None
    assert whole.training["recipe"]["init_weights_sha256"] == begun.weights_sha256
    assert whole.training["recipe"]["embedding_width"] == 12
    with pytest.raises(RunStateInvalid, match="is over, so there is nothing to resume"):
        check_unfinished(tmp_path / "whole")


def test_a_joint_model_has_no_matcher(tmp_path: Path) -> None:
    """The message says what to give; recipes that could train nothing are refused at once."""
    save_tiny_checkpoint(tmp_path / "joint")

    with pytest.raises(ValueError, match="begins with two towers, and the checkpoint given by --"):
        train_towers(joint_recipe(), tmp_path / "out", init=tmp_path / "joint")
    with pytest.raises(ValueError, match="takes trained towers as they are, and trains no matcher"):
        joint_recipe(matcher_step_count=0)
    with pytest.raises(ValueError, match="begins with a published encoder: set matcher_layer_c"):
        joint_recipe(matcher_layer_count=0)


def test_pictures_are_held_out_by_family() -> None:
    """Another seed holds out others; no family is on both sides."""
    recipe = tower_recipe(held_out_family_count=5)

    kept, held = divided(TRAIN, recipe)
    _, others = divided(TRAIN, replace(recipe, seed=2))

    assert sorted(each.record_id for each in kept + held) == sorted(r.record_id for r in TRAIN)
    assert not {each.family for each in kept} & {each.family for each in held}
    assert [each.record_id for each in held] != [each.record_id for each in others]
    with pytest.raises(ValueError, match="99 families are to be held out of"):
        divided(TRAIN, replace(recipe, held_out_family_count=99))


def test_a_picture_is_held_out_of_a_family_that_is_learned() -> None:
    """Each of another family with other pictures; families of one picture are all learned."""
    records = [
        *(replace(each, family=f"pair {number // 2}") for number, each in enumerate(TRAIN[:12])),
        *(replace(each, family=f"single {number}") for number, each in enumerate(TRAIN[12:16])),
    ]
    for number, each in enumerate(records):  # no shared caption joins two of these families
        caption = replace(each.captions[0], text=f"caption {number}")
        records[number] = replace(each, captions=(caption,))
    recipe = tower_recipe(held_out_family_count=0, held_out_picture_count=3)

    kept, held = divided(records, recipe)

    families = {each.family for each in held}
    assert sorted(each.record_id for each in kept + held) == sorted(r.record_id for r in records)
    assert len(held) == len(families) == 3
    assert families <= {each.family for each in kept}
    with pytest.raises(ValueError, match=r"4 families of several pictures are .* of 6.*picture_co"):
        divided(records, replace(recipe, held_out_picture_count=4))
    with pytest.raises(ValueError, match="holds out both families and pictures: set held_out_"):
        tower_recipe(held_out_family_count=5, held_out_picture_count=3)


def test_the_matching_loss_leaves_out_pictures_of_one_group() -> None:
    """Worked by hand: three pictures, of which two are of one group."""
    logits = torch.tensor([[2.0, 9.0, 0.0], [9.0, 1.0, 0.0], [1.0, 0.0, 3.0]])

    loss = matching_loss(logits, torch.tensor([7, 7, 8]))

    def cross_entropy(own: float, *others: float) -> float:
        every = torch.tensor([own, *others])
        return -(every[0] - every.logsumexp(0)).item()

    rows = [cross_entropy(2, 0), cross_entropy(1, 0), cross_entropy(3, 1, 0)]
    columns = [cross_entropy(2, 1), cross_entropy(1, 0), cross_entropy(3, 0, 0)]
    assert loss.item() == pytest.approx((sum(rows) / 3 + sum(columns) / 3) / 2)


def test_the_reciprocal_rank_is_of_both_directions() -> None:
    """Worked by hand: row 0 finds its own second, column 1 its own second, all others first."""
    scores = torch.tensor([[5.0, 7.0], [1.0, 6.0]])

    assert _reciprocal_rank(scores) == pytest.approx((0.5 + 1 + 1 + 0.5) / 4)
