"""Applies the options of `tandem train` to the named recipe, and rejects those it would ignore."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, get_args

from tandem.corpus.readable_records import OnError
from tandem.modeling.config import ImageSource
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.training.recipes.named_recipes import RECIPES, finetune, recipe_named
from tandem.training.recipes.recipe import (
    MatcherRecipe,
    Recipe,
    ZooRecipe,
    check_read,
    in_rounds,
    on_corpus,
)
from tandem.training.starting_model import as_trained

FINETUNE: Final = "finetune"
SCENES: Final = "scenes"
RECIPE_NAMES: Final = (*sorted(RECIPES), FINETUNE)
_FINETUNE_ROUND_COUNT = 300
_OPTIONS: Final = {"pretrained": "--from"}
_OF_EVERY_CORPUS = frozenset(
    {
        "corpus",
        "regions",
        "features",
        "init",
        "rounds",
        "backbone_steps",
        "count",
        "language",
        "drop_long_captions",
        "on_error",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Holds the options that change a recipe; None where one was not given."""

    corpus: str | None
    regions: Path | None
    features: Path | None
    init: Path | None
    rounds: int | None
    backbone_steps: int | None
    pretrained: str | None
    image_source: str | None
    """A source by name, or else the folder or hub name of a vision network."""
    language: str | None
    """Languages of the captions that are read, separated by commas."""
    count: int | None
    drop_long_captions: bool | None
    on_error: OnError | None

    def check_unset(self, settings: Collection[str], precision: str | None = None) -> None:
        """Raises ValueError for a field that `--set` changes and an option fixes as well."""
        fixed = {
            "round_count": ("--rounds", self.rounds),
            "backbone_step_count": ("--backbone-steps", self.backbone_steps),
            "pretrained": ("--from", self.pretrained),
            "image_source": ("--image-source", self.image_source),
            "vision": ("--image-source", self.image_source),
            "precision": ("--precision", precision),
        }
        for setting in settings:
            name = setting.partition("=")[0].strip()
            option, given = fixed.get(name, ("", None))
            if given is not None:
                raise ValueError(f"{option} and --set {name} fix the same field; give one of them")

    def chosen(self, recipe: str, seed: int) -> Recipe:
        """Returns the named recipe with the options applied.

        Raises ValueError for an unknown name and for an option that would be ignored.
        """
        return replace(self._named(recipe, seed), languages=self.language or "")

    def _named(self, recipe: str, seed: int) -> Recipe:
        if recipe == FINETUNE:
            return self._finetune(seed)
        if recipe not in RECIPES:
            close = difflib.get_close_matches(recipe, RECIPE_NAMES, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise ValueError(
                "\n  ".join(
                    [f"no recipe {recipe!r}{meant} The recipes are", *map(_described, RECIPE_NAMES)]
                )
            )
        named = recipe_named(recipe, seed)
        if self.corpus is None or self.corpus == SCENES:
            return self._on_scenes(named)
        return self._on_corpus(named, self.corpus)

    def _finetune(self, seed: int) -> Recipe:
        self._refuse_all_but(
            _OF_EVERY_CORPUS,
            f"{FINETUNE} takes its encoder and image source from --init; drop the option, or train "
            "a "
            "recipe",
        )
        if self.corpus is None:
            raise ValueError(f"{FINETUNE} needs --corpus: scenes, emoji or a path")
        rounds = _FINETUNE_ROUND_COUNT if self.rounds is None else self.rounds
        recipe = finetune(self.corpus, rounds, seed, self.backbone_steps or 0)
        return as_trained(recipe, self.init or default_checkpoint())

    def _on_scenes(self, recipe: Recipe) -> Recipe:
        taken = {"pretrained", "image_source"}
        if recipe.begins_with_backbone:
            taken = {"init", *_of_backbone(recipe)}
        if recipe.begins_trained:
            taken = {"init", "rounds"}
        self._refuse_all_but(
            {"corpus", *taken},
            f"recipe {recipe.name} fixes these options on scenes; drop them, or pass --corpus",
        )
        recipe = self._shaped(recipe, self.image_source)
        return recipe if self.rounds is None else in_rounds(recipe, self.rounds)

    def _on_corpus(self, recipe: Recipe, corpus: str) -> Recipe:
        taken = {"pretrained", "image_source"}
        if recipe.begins_with_backbone:
            taken = _of_backbone(recipe)
        elif isinstance(recipe, MatcherRecipe):
            taken = set()
            if self.init is None:
                raise ValueError(
                    f"recipe {recipe.name} begins with trained towers: name their checkpoint with "
                    "--init"
                )
        elif recipe.begins_trained:
            taken = set()
        elif self.init is not None:
            taken = set()
            recipe = replace(recipe, begins_trained=True, pretrained="")
        self._refuse_all_but(
            _OF_EVERY_CORPUS | taken,
            "the checkpoint that the run starts from fixes it; drop the option, or start without "
            "one",
        )
        source = self.image_source
        if source is None and "image_source" in taken and self.regions:
            source = "regions"
        if isinstance(recipe, MatcherRecipe) and self.rounds is not None:
            raise ValueError(
                f"--rounds would be ignored: recipe {recipe.name} trains no towers; give "
                "--set matcher_step_count=N"
            )
        recipe = on_corpus(self._shaped(recipe, source), corpus)
        if self.rounds is not None:
            recipe = in_rounds(recipe, self.rounds)
        if self.backbone_steps is not None:
            check_read(recipe, ["backbone_step_count"])
            changes: dict[str, Any] = {"backbone_step_count": self.backbone_steps}
            recipe = replace(recipe, **changes)
        return recipe

    def _shaped(self, recipe: Recipe, image_source: str | None) -> Recipe:
        changes: dict[str, Any] = {"pretrained": self.pretrained}
        if image_source in get_args(ImageSource):
            changes |= {"image_source": image_source, "vision": ""}
        elif image_source is not None:
            changes |= {"image_source": "vision_tower", "vision": image_source}
        if isinstance(recipe, ZooRecipe) and image_source is not None:
            changes["begins_with_backbone"] = False
        return replace(recipe, **{name: v for name, v in changes.items() if v is not None})

    def _refuse_all_but(self, taken: Collection[str], why: str) -> None:
        ignored = [
            _OPTIONS.get(each.name, f"--{each.name.replace('_', '-')}")
            for each in fields(self)
            if each.name not in taken and getattr(self, each.name) is not None
        ]
        if ignored:
            raise ValueError(f"{', '.join(ignored)} would be ignored: {why}")


def _of_backbone(recipe: Recipe) -> set[str]:
    """Returns the options that a recipe over a trained image backbone takes."""
    return {"pretrained", "image_source"} if isinstance(recipe, ZooRecipe) else {"pretrained"}


def _described(name: str) -> str:
    """Returns a recipe with the first sentence about it."""
    first = ((finetune if name == FINETUNE else RECIPES[name]).__doc__ or "").partition("\n\n")[0]
    return f"{name}: {' '.join(first.split()).rstrip('.')}"
