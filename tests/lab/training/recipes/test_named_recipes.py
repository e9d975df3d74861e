"""Recipes: found by name, and complete in the checkpoint's folder."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from tandem.lab.training.recipes.named_recipes import (
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
from tandem.lab.training.recipes.recipe import JointRecipe, in_rounds, on_corpus
from tandem.modeling.config import ImageSource


def joint_named(name: str, seed: int) -> JointRecipe:
    recipe = recipe_named(name, seed)
    assert isinstance(recipe, JointRecipe)
    return recipe


def test_every_recipe_is_consistent_and_survives_being_written_down() -> None:
    """Its name finds it, batches fit the pool, phases the rounds; training.json has all of it."""
    for name in RECIPES:
        recipe = recipe_named(name, seed=7)
        assert (recipe.name, recipe.seed) == (name, 7)
        assert all(each <= recipe.pool_family_count for each in recipe.batch_family_counts.values())
        phases = [each.name for each in fields(recipe) if each.name.endswith("_round_count")]
        assert all(getattr(recipe, phase) <= recipe.round_count for phase in phases)
        assert recipe.width % recipe.head_count == 0
        read = json.loads(json.dumps(recipe.to_dict()))
        assert type(recipe)(**{each.name: read[each.name] for each in fields(recipe)}) == recipe
        assert recipe.differing(read) == []
    # So a test on pictures that trained the checkpoint it begins with is refused.
    begins = [name for name in RECIPES if recipe_named(name, 1).begins_with_checkpoint]
    assert begins == ["compact", "cross_encoder_after_be", "joint_matcher", "zoo"]
    with pytest.raises(ValueError, match="no recipe 'huge'; there are ance, ance_mismatches"):
        recipe_named("huge", seed=1)


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
    with pytest.raises(ValueError, match=why):
        replace(joint_named("ance", 1), **fields)


def test_every_recipe_is_one_for_a_corpus_too() -> None:
    for name in RECIPES:
        scenes = recipe_named(name, 1)
        recipe = on_corpus(scenes, "list:there")
        assert (recipe.corpus, recipe.round_count) == ("list:there", scenes.round_count)
        assert recipe.learns_backbone == (scenes.learns_backbone and not scenes.begins_trained)
        if isinstance(recipe, JointRecipe) and isinstance(scenes, JointRecipe):
            # A family of scenes gives a match for each of its four, a family of records gives one.
            assert recipe.ce_family_count == 4 * scenes.ce_family_count
            assert recipe.sibling_negative_share == 0
            assert recipe.uses_in_order(is_mined=True) == scenes.uses_in_order(is_mined=True)


@pytest.mark.parametrize("source", ["patches"])
def test_a_backbone_that_does_not_learn_has_no_steps(source: ImageSource) -> None:
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


def test_a_manifest_with_the_fields_of_every_kind_is_of_the_same_recipe() -> None:
    """Such as earlier releases wrote; a run of theirs resumes."""
    recipe = joint_named("default", 1)
    older = recipe.to_dict() | {"hinges": "hardest", "matcher_width": 0, "zoo_text_reader": "gru"}

    assert recipe.differing(older) == []
    assert recipe.differing(older | {"has_two_towers": True}) == ["has_two_towers"]
    assert recipe.differing(older | {"of_another_release": 1}) == ["of_another_release"]
