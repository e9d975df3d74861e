"""Changes single fields of a recipe by their names, as `tandem train --set field=value` does."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from tandem.training.recipe import Recipe

_OPTIONS: Final[Mapping[str, str]] = {
    "name": "it is the recipe's name: the command's first word",
    "seed": "use --seed",
    "corpus": "use --corpus",
    "languages": "use --language",
    "begins_trained": "use --init, or a recipe that begins with a checkpoint",
}
_DIGEST: Final = "_sha256"
_TRUTHS: Final = {"true": True, "false": False}
_SHAPE: Final = ("width", "layer_count", "head_count", "vocabulary_size")
_OF_JOINT: Final = (
    *("be_steps_per_round", "accumulation_step_count", "softmax_round_count"),
    *("softmax_temperature", "random_negative_round_count", "sibling_negative_share"),
    *("ce_family_count", "pair_loss", "pair_margin", "mlm_batch_size", "mlm_masked_share"),
    *("mined_from_round_count", "mined_refresh_round_count", "mined_neighbour_count"),
    *("mined_negative_share", "ance_steps_per_round", "ance_batch_size", "ance_negative_count"),
)
"""Fields that rounds of BE and CE read, and those of the zoo do not."""
_OF_LAYERS: Final = ("layer_count", "head_count", "has_frozen_text")
_OF_ZOO: Final = ("zoo_text_reader", "hinges", "all_hinges_round_count")
_OF_MATCHER: Final = (
    *("matcher_has_towers", "matcher_layer_count", "matcher_batch_size"),
    *("matcher_learning_rate", "matcher_neighbour_count"),
)
_OF_TOWERS: Final = (
    *("head_width", "head_dropout", "learns_temperature", "late_learning_rate"),
    *("word_drop_share", "matcher_width", *_OF_MATCHER),
)
_OF_TOWERS_AND_ZOO: Final = ("embedding_width", "head_learning_rate", "has_frozen_text")
_KINDS: Final = {int: "an integer", float: "a number", bool: "true or false"}


def with_settings(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Returns the recipe with each `field=value` applied.

    Raises ValueError for a text without "=", a field that does not exist, appears twice, has an
    option of its own, is fixed by the weights that the run begins with or is not read by what the
    recipe trains, and for a value of another type or out of range.
    """
    types = get_type_hints(Recipe)
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals:
            raise ValueError(f"--set {setting}: write it as field=value, such as margin=0.2")
        _check_name(name)
        if name in changes:
            raise ValueError(f"--set {name} is given twice; give it once")
        changes[name] = _value(name, text.strip(), types[name])
    changed = replace(recipe, **changes)
    fixed = [name for name in _SHAPE if name in changes]
    if fixed and (changed.pretrained or changed.begins_trained):
        raise ValueError(
            f"--set {', '.join(fixed)} would be ignored: the weights that the run begins with fix "
            "the shape; drop it, or begin with random weights"
        )
    for name, instead in unread_fields(changed).items():
        if name in changes and changes[name] != getattr(recipe, name):
            raise ValueError(f"--set {name} would be ignored: {instead}")
    return changed


def unread_fields(recipe: Recipe) -> dict[str, str]:
    """Returns the fields that are not read by what the recipe trains, each with what to do."""
    unread: dict[str, str] = {}
    if recipe.zoo_model:
        unread |= dict.fromkeys(
            _OF_JOINT, f"{recipe.zoo_model} learns by its hinges alone; leave it out"
        )
        if recipe.zoo_text_reader == "gru":
            why = "a GRU reads the words; {}, or set zoo_text_reader=transformer as well"
            unread |= dict.fromkeys(_OF_LAYERS, why.format("leave it out"))
            unread["learning_rate"] = why.format("set head_learning_rate instead")
        if recipe.embedding_width:
            unread["width"] = "what a network of the zoo compares is embedding_width wide; set that"
    else:
        unread |= dict.fromkeys(_OF_ZOO, "only a network of the zoo reads it: set zoo_model")
    if recipe.begins_trained:  # the checkpoint says whether it has towers
        return unread
    if not recipe.has_two_towers:
        which = _OF_TOWERS if recipe.zoo_model else (*_OF_TOWERS, *_OF_TOWERS_AND_ZOO)
        unread |= dict.fromkeys(which, "only two towers read it: take the recipe photographs")
    elif not recipe.matcher_step_count:
        why = "there is no matcher to train: set matcher_step_count and matcher_width"
        unread |= dict.fromkeys(_OF_MATCHER, why)
    return unread


def _check_name(name: str) -> None:
    """Raises ValueError for a field that cannot be set this way."""
    if name in _OPTIONS:
        raise ValueError(f"--set {name}: {_OPTIONS[name]}")
    known = [each.name for each in fields(Recipe) if not each.name.endswith(_DIGEST)]
    if name.endswith(_DIGEST) and name in {each.name for each in fields(Recipe)}:
        raise ValueError(f"--set {name}: it is a digest, which the run fills in")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {close[0]}?" if close else "."
        settable = ", ".join(each for each in known if each not in _OPTIONS)
        raise ValueError(f"a recipe has no field {name!r}{meant} The fields are {settable}")


def _value(name: str, text: str, kind: Any) -> Any:  # noqa: ANN401  whatever a field's type is
    """Returns the text as the field's type; raises ValueError naming what is expected."""
    if kind is str:
        return text
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(
                f"--set {name} is {text!r}, not one of {', '.join(map(str, get_args(kind)))}"
            )
        return text
    try:
        if kind is bool:
            return _TRUTHS[text.lower()]
        return kind(text.replace("_", "") if kind is int else text)
    except (KeyError, ValueError) as error:
        raise ValueError(f"--set {name} is {text!r}, not {_KINDS[kind]}") from error
