"""Changes single fields of a recipe by their names, as `tandem train --set field=value` does."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from tandem.lab.training.recipes.recipe import (
    JointRecipe,
    Kind,
    MatcherSteps,
    Recipe,
    TowerRates,
    Towers,
    ZooRecipe,
    check_read,
)
from tandem.platform.files.field_settings import field_settings

_OPTIONS: Final[Mapping[str, str]] = {
    "name": "it is the recipe's name: the command's first word",
    "seed": "use --seed",
    "corpus": "use --corpus",
    "languages": "use --language",
    "begins_trained": "use --init, or a recipe that begins with a checkpoint",
}
_DIGEST: Final = "_sha256"
_OF_LAYERS: Final = ("layer_count", "head_count", "has_frozen_text")
_SHAPE: Final = ("width", "layer_count", "head_count", "vocabulary_size")


def with_settings(recipe: Kind, settings: Sequence[str]) -> Kind:
    """Returns the recipe with each `field=value` applied.

    Raises ValueError for a field that does not exist, appears twice, has an option of its own or
    would be ignored, and for a value of another type or out of range.
    """
    names = [setting.partition("=")[0].strip() for setting in settings]
    for name in names:
        if name in _OPTIONS:
            raise ValueError(f"--set {name}: {_OPTIONS[name]}")
        if name.endswith(_DIGEST):
            raise ValueError(f"--set {name}: it is a digest, which the run fills in")
    check_read(recipe, names)
    what = f"recipe {recipe.name}"
    own = [each.name for each in fields(recipe)]
    hidden = [name for name in own if name in _OPTIONS or name.endswith(_DIGEST)]
    changes = field_settings(type(recipe), settings, what, hidden)
    changed = replace(recipe, **changes)
    fixed = [name for name in _SHAPE if name in changes]
    if fixed and (changed.pretrained or changed.begins_trained):
        raise ValueError(
            f"--set {', '.join(fixed)} would be ignored: the weights that the run begins with fix "
            "the shape; drop it, or begin with random weights"
        )
    for name, instead in _unread(changed).items():
        if name in changes and changes[name] != getattr(recipe, name):
            raise ValueError(f"--set {name} would be ignored: {instead}")
    return changed


def _unread(recipe: Recipe) -> dict[str, str]:
    """Returns the fields that other fields switch off, each with what to do."""
    if isinstance(recipe, JointRecipe) and not recipe.begins_trained:
        why = "only two towers read it: take the recipe photographs"
        return dict.fromkeys(_beyond_base(TowerRates), why)
    if isinstance(recipe, Towers) and not recipe.matcher_step_count:
        why = "there is no matcher to train: set matcher_step_count and matcher_width"
        return dict.fromkeys(_beyond_base(MatcherSteps), why)
    if isinstance(recipe, ZooRecipe) and recipe.zoo_text_reader == "gru":
        why = "a GRU reads the words: {}, or set zoo_text_reader=transformer as well"
        return dict.fromkeys(_OF_LAYERS, why.format("drop it")) | {
            "learning_rate": why.format("set head_learning_rate")
        }
    return {}


def _beyond_base(part: type[Recipe]) -> set[str]:
    return {each.name for each in fields(part)} - {each.name for each in fields(Recipe)}
