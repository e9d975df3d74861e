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
_KINDS: Final = {int: "an integer", float: "a number", bool: "true or false"}


def with_settings(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Returns the recipe with each `field=value` applied.

    Raises ValueError for a text without "=", a field that does not exist, appears twice, has an
    option of its own or is fixed by the weights that the run begins with, and for a value of
    another type or out of range.
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
    return changed


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
