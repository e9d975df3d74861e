"""Single fields of a recipe: set by name, typed, and within their range."""

from dataclasses import fields, replace

import pytest

from tandem.lab.training.recipes.named_recipes import (
    default,
    joint_matcher,
    minilm,
    two_towers,
    zoo,
)
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.recipes.recipe_settings import with_settings


def test_fields_get_values_of_their_types() -> None:
    settings = ["round_count=1_200", "margin=0.2", "has_half_the_layers=TRUE"]
    settings += ["pretrained=./bert", "dev_score = mean_recall", "learning_rate_decay=cosine"]

    changed = with_settings(default(3), settings)

    assert changed == replace(
        default(3),
        round_count=1_200,
        margin=0.2,
        has_half_the_layers=True,
        pretrained="./bert",
        dev_score="mean_recall",
        learning_rate_decay="cosine",
    )
    assert with_settings(default(3), []) == default(3)


def test_every_field_can_be_set_or_says_how() -> None:
    recipe, refused = default(1), {}
    own = [each.name for each in fields(recipe)]
    for name in own:
        try:
            assert with_settings(recipe, [f"{name}={getattr(recipe, name)}"]) == recipe
        except ValueError as error:
            refused[name] = str(error)

    digests = {name for name in own if name.endswith("_sha256")}
    assert set(refused) == digests | {"name", "seed", "corpus", "languages", "begins_trained"}
    assert all("digest" in refused[name] for name in digests)
    assert all("--set" in why for why in refused.values())


def test_invalid_recipe_values_are_refused() -> None:
    for settings, why in (
        (["margin"], "--set margin: write it as field=value, such as margin=0.2"),
        (["marign=0.2"], "no field 'marign'; did you mean margin"),
        (["margin=0.1", "margin=0.2"], "margin is given twice"),
        (["margin=wide"], "margin is 'wide', not a number"),
        (["be_batch_size=1"], "be_batch_size is 1, not 2 to"),
        (["dev_score=luck"], "'luck', not one of text_to_image, mean_recall"),
        (["seed=2"], "--set seed: use --seed"),
        (["corpus_sha256=0"], "a digest, which the run fills in"),
        (["precision=int8"], "has precision 'int8': bf16 or fp32"),
    ):
        with pytest.raises(ValueError, match=why):
            with_settings(default(1), settings)


def test_a_field_that_nothing_reads_is_refused() -> None:
    refused: list[tuple[Recipe, list[str], str]] = [
        (
            zoo(1),
            ["accumulation_step_count=4"],
            "accumulation_step_count would be ignored: recipe zoo trains",
        ),
        (zoo(1), ["matcher_width=8"], "only two towers and a matcher over trained towers read"),
        (default(1), ["has_frozen_text=true"], "only two towers read it: take"),
        (zoo(1), ["layer_count=2"], "a GRU reads the words: drop it"),
        (zoo(1), ["learning_rate=1e-3"], "a GRU reads the words: set head_learning_rate"),
        (joint_matcher(1), ["be_batch_size=8"], "trains a matcher over trained towers, and"),
        (two_towers(1), ["matcher_batch_size=8"], "no matcher to train: set matcher_step_count"),
    ]
    for recipe, settings, why in refused:
        with pytest.raises(ValueError, match=why):
            with_settings(recipe, settings)


def test_a_field_is_taken_together_with_what_reads_it() -> None:
    read = ["zoo_text_reader=transformer", "learning_rate=1e-3", "layer_count=2", "hinges=all"]
    assert with_settings(zoo(1), read).learning_rate == 1e-3
    with_matcher = ["matcher_step_count=5", "matcher_width=8", "matcher_batch_size=8"]
    assert with_settings(two_towers(1), with_matcher).matcher_batch_size == 8


def test_a_shape_that_weights_fix_is_refused() -> None:
    """It would be ignored; from random weights it is taken."""
    assert with_settings(default(1), ["width=96"]).width == 96
    with pytest.raises(ValueError, match="width would be ignored: the weights"):
        with_settings(minilm(1), ["width=96"])
