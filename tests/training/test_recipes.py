"""Recipes: found by name, and whole in what is written beside a checkpoint."""

import json

import pytest

from tandem.training.recipes import RECIPES, Recipe, recipe_named


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_is_called_what_it_is_found_by(name: str) -> None:
    """And takes the seed that it is given."""
    recipe = recipe_named(name, seed=7)

    assert (recipe.name, recipe.seed) == (name, 7)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_survives_being_written_down(name: str) -> None:
    """Everything that shaped a checkpoint can be read back from its training.json."""
    recipe = recipe_named(name, seed=1)

    assert Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_is_consistent(name: str) -> None:
    """Batches fit the pool, phases fit the rounds, and shares are shares."""
    recipe = recipe_named(name, seed=1)

    assert recipe.be_batch_size <= recipe.pool_family_count
    assert 2 <= recipe.ce_family_count <= recipe.pool_family_count
    assert recipe.softmax_round_count <= recipe.round_count
    assert recipe.random_negative_round_count <= recipe.round_count
    assert 0 <= recipe.sibling_negative_share <= 1
    assert recipe.width % recipe.head_count == 0
    assert 0 < recipe.margin < 1


def test_an_unknown_recipe_is_refused_with_the_known_ones() -> None:
    """The message says what to ask for."""
    with pytest.raises(
        ValueError,
        match="no recipe 'huge'; there are bi_encoder, cross_encoder, default, half, half_minilm, "
        "minilm, tiny",
    ):
        recipe_named("huge", seed=1)


def test_the_separate_models_are_trained_as_much_as_the_joint_one() -> None:
    """So that Sep and Joint differ in what is shared, and in nothing else."""
    joint, be, ce = (recipe_named(name, 1) for name in ("default", "bi_encoder", "cross_encoder"))

    assert (joint.trains_be, joint.trains_ce) == (True, True)
    assert (be.trains_be, be.trains_ce) == (True, False)
    assert (ce.trains_be, ce.trains_ce) == (False, True)
    assert be.be_steps_per_round * be.round_count == joint.be_steps_per_round * joint.round_count
    assert ce.ce_steps_per_round * ce.round_count == joint.ce_steps_per_round * joint.round_count
