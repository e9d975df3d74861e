"""Recipes: found by name, and complete in the checkpoint's folder."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from tandem.modeling.config import ImageSource
from tandem.training.recipes.named_recipes import (
    RECIPES,
    ance,
    ance_mismatches,
    ance_triplets,
    bi_encoder,
    compact,
    cross_encoder,
    cross_encoder_after_be,
    half,
    recipe_named,
    small,
)
from tandem.training.recipes.recipe import JointRecipe, in_rounds, on_corpus


def joint_named(name: str, seed: int) -> JointRecipe:
    """Returns a recipe of a joint model."""
    recipe = recipe_named(name, seed)
    assert isinstance(recipe, JointRecipe)
    return recipe


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipes_name_finds_it(name: str) -> None:
    recipe = recipe_named(name, seed=7)

    assert (recipe.name, recipe.seed) == (name, 7)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_survives_being_written_down(name: str) -> None:
    """Everything that shaped a checkpoint can be read back from its training.json."""
    recipe = recipe_named(name, seed=1)

    read = json.loads(json.dumps(recipe.to_dict()))
    assert type(recipe)(**{each.name: read[each.name] for each in fields(recipe)}) == recipe
    assert recipe.differing(read) == []


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_is_consistent(name: str) -> None:
    """Batches fit the pool, phases fit the rounds, and shares are shares."""
    recipe = recipe_named(name, seed=1)

    assert all(each <= recipe.pool_family_count for each in recipe.batch_family_counts.values())
    phases = [each.name for each in fields(recipe) if each.name.endswith("_round_count")]
    assert all(getattr(recipe, name) <= recipe.round_count for name in phases)
    assert recipe.width % recipe.head_count == 0


def test_negatives_are_mined_on_time() -> None:
    """Before round 1,001, then each 500 rounds; by the default recipe never."""
    recipe = joint_named("ance", 1)

    mining = [number for number in range(1, 2_401) if recipe.mines_before(number)]

    assert mining == [1_001, 1_501, 2_001]
    assert not any(joint_named("default", 1).mines_before(number) for number in range(1, 2_401))


def test_mined_negatives_are_two_switches() -> None:
    """Each recipe has one of the two that `ance` has, and is otherwise the same."""
    both = ance(5, compact)
    triplets, mismatches = ance_triplets(5, compact), ance_mismatches(5, compact)

    assert (triplets.name, mismatches.name) == ("compact_ance_triplets", "compact_ance_mismatches")
    assert replace(triplets, name=both.name, mined_negative_share=0.05) == both
    assert replace(mismatches, name=both.name, ance_steps_per_round=1) == both
    assert (triplets.mined_negative_share, mismatches.ance_steps_per_round) == (0, 0)
    assert "ance" not in mismatches.uses_in_order(is_mined=True)


def test_another_base_has_the_same_variants() -> None:
    """Its name says which; what is varied follows its size."""
    base = joint_named("compact", 5)

    assert bi_encoder(5, compact) == replace(base, name="compact_bi_encoder", ce_steps_per_round=0)
    assert half(5, compact) == replace(
        base, name="compact_half", layer_count=2, has_half_the_layers=True
    )
    mining = [number for number in range(1, 901) if ance(5, compact).mines_before(number)]
    assert mining == [376, 563, 750]
    alone, begun = cross_encoder(5, compact), cross_encoder_after_be(5, compact)
    assert begun.name == "compact_cross_encoder_after_be"
    assert replace(begun, begins_trained=False, name=alone.name) == replace(
        alone, begins_with_backbone=False
    )
    with pytest.raises(ValueError, match="recipe small has 3 layers"):
        half(5, small)


def test_a_round_runs_be_mlm_ce_and_mined_ce() -> None:
    """The paper's order, with the masked words before the CE; no ANCE before the first mining."""
    words = ("mlm",) * 3

    recipe = joint_named("ance", 1)
    assert recipe.uses_in_order(is_mined=True) == ("be", *words, "ce", "ance", "ce")
    assert recipe.uses_in_order(is_mined=False) == ("be", *words, "ce", "ce")
    assert joint_named("default", 1).uses_in_order(is_mined=False) == ("be", *words, "ce", "ce")
    plain = joint_named("no_masked_words", 1)
    assert plain.uses_in_order(is_mined=False) == ("be", "ce", "ce")
    assert joint_named("bi_encoder", 1).uses_in_order(is_mined=False) == ("be", *words)
    assert joint_named("cross_encoder", 1).uses_in_order(is_mined=False) == (*words, "ce", "ce")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mined_refresh_round_count": 0}, "never mines"),
        ({"be_steps_per_round": 0}, "mines by the BE, which it does not train"),
    ],
)
def test_a_recipe_that_cannot_mine_is_refused(fields: dict[str, Any], why: str) -> None:
    """At once, not at the first step that draws a mined negative."""
    with pytest.raises(ValueError, match=why):
        replace(joint_named("ance", 1), **fields)


def test_an_unknown_recipe_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError,
        match="no recipe 'huge'; there are ance, ance_mismatches, ance_triplets, bi_encoder, "
        "cls_pooling, compact, cross_encoder, cross_encoder_after_be, default, frozen_heads, "
        "half, "
        "half_minilm, joint_matcher, minilm, "
        "no_masked_words, pair_triplets, paper, photographs, photographs_joint, "
        "picture_dictionary, "
        "random_negatives, "
        "small, ",
    ):
        recipe_named("huge", seed=1)


def test_the_separate_models_are_trained_as_much_as_the_joint_one() -> None:
    """So that Sep and Joint differ in what is shared, and in nothing else."""
    joint, be, ce = (joint_named(name, 1) for name in ("default", "bi_encoder", "cross_encoder"))

    assert (joint.trains_be, joint.trains_ce) == (True, True)
    assert (be.trains_be, be.trains_ce) == (True, False)
    assert (ce.trains_be, ce.trains_ce) == (False, True)
    assert be.be_steps_per_round * be.round_count == joint.be_steps_per_round * joint.round_count
    assert ce.ce_steps_per_round * ce.round_count == joint.ce_steps_per_round * joint.round_count


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_is_one_for_a_corpus_too(name: str) -> None:
    """With as many pairs a step as of scenes, and none of a sibling, whose captions are shared."""
    scenes = recipe_named(name, 1)

    recipe = on_corpus(scenes, "list:there")

    assert recipe.corpus == "list:there"
    assert recipe.round_count == scenes.round_count
    assert recipe.learns_backbone == (scenes.learns_backbone and not scenes.begins_trained)
    if isinstance(recipe, JointRecipe) and isinstance(scenes, JointRecipe):
        # A family of scenes gives a match for each of its four, a family of records gives one.
        assert recipe.ce_family_count == 4 * scenes.ce_family_count
        assert recipe.sibling_negative_share == 0
        assert recipe.uses_in_order(is_mined=True) == scenes.uses_in_order(is_mined=True)


@pytest.mark.parametrize("source", ["patches", "efficientnet_lite0", "regions"])
def test_a_backbone_that_does_not_learn_has_no_steps(source: ImageSource) -> None:
    """On a corpus, of whatever the recipe gives a grid."""
    scenes = replace(joint_named("default", 1), image_source=source)

    assert on_corpus(scenes, "emoji").backbone_step_count == 0


def test_fewer_rounds_are_the_same_in_small() -> None:
    """What is counted in rounds keeps its part of them: a recipe that mines still mines."""
    recipe = in_rounds(ance(1), 24)

    assert (recipe.softmax_round_count, recipe.mined_from_round_count) == (5, 10)
    assert (recipe.mined_refresh_round_count, recipe.dev_every_round_count) == (5, 2)
    # 100 of 2,400 rounds warm up; a recipe without a warm-up gets none.
    assert recipe.warm_up_step_count == 1
    assert in_rounds(recipe_named("photographs", 1), 700).warm_up_step_count == 35
    assert in_rounds(recipe_named("paper", 1), 3_000).warm_up_step_count == 0
    assert [n for n in range(1, 25) if recipe.mines_before(n)] == [11, 16, 21]
    assert in_rounds(ance(1), 2400) == ance(1)
    assert in_rounds(recipe_named("default", 1), 1).dev_every_round_count == 1
    with pytest.raises(ValueError, match="round_count is 0"):
        in_rounds(ance(1), 0)


def test_half_of_a_checkpoint_of_ours_is_refused() -> None:
    """It continues whole, and the recipe would say otherwise."""
    with pytest.raises(ValueError, match="half_minilm has half the layers of a published encoder"):
        replace(recipe_named("half_minilm", 1), begins_trained=True)


def test_a_manifest_with_the_fields_of_every_kind_is_of_the_same_recipe() -> None:
    """Such as earlier releases wrote; a run of theirs resumes."""
    recipe = joint_named("default", 1)
    older = recipe.to_dict() | {"hinges": "hardest", "matcher_width": 0, "zoo_text_reader": "gru"}

    assert recipe.differing(older) == []
    assert recipe.differing(older | {"has_two_towers": True}) == ["has_two_towers"]
    assert recipe.differing(older | {"of_another_release": 1}) == ["of_another_release"]
