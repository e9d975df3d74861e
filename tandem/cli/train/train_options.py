"""Applies the options of `tandem train` to the named recipe, and rejects those it would ignore."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer

from tandem.cli.options import MAX_SEED, MAX_SEED_COUNT, check_seeds, flag_of
from tandem.corpus.readable_records import OnError
from tandem.lab.training.recipes.named_recipes import RECIPES, finetune, recipe_named
from tandem.lab.training.recipes.recipe import (
    CooperativeRecipe,
    MatcherRecipe,
    Recipe,
    ZooRecipe,
    in_rounds,
    on_corpus,
)
from tandem.lab.training.recipes.recipe_settings import with_settings
from tandem.lab.training.starting_model import as_trained
from tandem.model_io.repository.precision import Precision
from tandem.modeling.config import ImageSource
from tandem.modeling.default_checkpoint import default_checkpoint

FINETUNE: Final = "finetune"
SCENES: Final = "scenes"
RECIPE_NAMES: Final = (*sorted(RECIPES), FINETUNE)
_FINETUNE_ROUND_COUNT = 300
_OPTIONS: Final = {"pretrained": "--from"}
_OF_EVERY_CORPUS = (
    "corpus",
    "regions",
    "features",
    "init",
    "rounds",
    "count",
    "language",
    "drop_long_captions",
    "on_error",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of the command."""

    recipe: Annotated[
        str,
        typer.Argument(help=f"one of {', '.join(sorted(RECIPES))}, or {FINETUNE} with --corpus"),
    ]
    folder: Annotated[Path, "folder for the checkpoint"] = Path("checkpoints")
    seed: Annotated[int, typer.Option(help="random seed", min=0, max=MAX_SEED)] = 1
    seed_count: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            max=MAX_SEED_COUNT,
            help="train this many seeds from --seed on, evaluate each, and print mean, deviation "
            "and interval; the same command continues after a stop",
        ),
    ] = None
    against: Annotated[
        str | None, "with --seeds: another recipe, trained and measured alike and compared"
    ] = None
    test: Annotated[
        str, "with --seeds: arguments of tandem evaluate, which the corpus precedes"
    ] = "--split test"
    device: Annotated[str | None, "cpu, cuda or cuda:n; by default cuda if available, else cpu"] = (
        None
    )
    pretrained: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="folder or hub name of a BERT, MiniLM, RoBERTa or XLM-R to start from; for "
            "cooperative, of a model of texts and pictures",
        ),
    ] = None
    image_source: Annotated[
        str | None,
        "source of image tokens: grid, patches, efficientnet_lite0, regions, or the "
        "folder or hub name of a ViT, CLIP, SigLIP, DINOv2, ConvNeXt or ResNet; by default the "
        "recipe's",
    ] = None
    precision: Annotated[
        Precision | None,
        "bf16 or fp32, for matrix products; by default the recipe's, or fp32 where a CPU "
        "would emulate bf16",
    ] = None
    resume: Annotated[bool, "resume a stopped run"] = False
    overwrite: Annotated[bool, "replace another run in the folder"] = False
    corpus: Annotated[str | None, "corpus to train on: emoji or a path; by default scenes"] = None
    regions: Annotated[Path | None, "with --corpus: file of regions to read instead of pixels"] = (
        None
    )
    features: Annotated[
        Path | None,
        "with --corpus: folder where image tokens of a frozen network are kept for later "
        "runs; by default features in --folder",
    ] = None
    init: Annotated[
        Path | None,
        f"checkpoint to start from: for {FINETUNE} and cross_encoder_after_be, by default "
        "the bundled one; joint_matcher needs one; with --corpus for any other recipe, none",
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(help="with --corpus: number of rounds; by default the recipe's", min=1),
    ] = None
    count: Annotated[
        int | None,
        typer.Option(help="with --corpus: number of training records; by default all", min=1),
    ] = None
    language: Annotated[
        list[str] | None,
        "with --corpus: language of the captions to read; repeatable; by default all",
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="change a field of the recipe; repeatable"
        ),
    ] = None
    drop_long_captions: Annotated[bool, "with --corpus: drop too long captions"] = False
    on_error: Annotated[
        OnError | None, "with --corpus: stop at a record that cannot be read (default), or skip it"
    ] = None

    def __post_init__(self) -> None:
        """Raises ValueError for options that contradict each other."""
        if self.seed_count is None:
            if self.against is not None:
                raise ValueError("--against compares recipes over several seeds: give --seeds too")
            if self.resume and self.overwrite:
                raise ValueError("--resume continues a run and --overwrite replaces it; give one")
        else:
            if self.resume or self.overwrite:
                raise ValueError("--seeds continues by itself: leave out --resume and --overwrite")
            if self.against == self.recipe:
                raise ValueError(f"--against {self.against} is the recipe itself: name another")
            check_seeds(self.seed, self.seed_count)
        fixed = {
            "round_count": ("--rounds", self.rounds),
            "pretrained": ("--from", self.pretrained),
            "image_source": ("--image-source", self.image_source),
            "vision": ("--image-source", self.image_source),
            "precision": ("--precision", self.precision),
        }
        for name in self.set_fields:
            option, given = fixed.get(name, ("", None))
            if given is not None:
                raise ValueError(f"{option} and --set {name} fix the same field; give one of them")

    @property
    def set_fields(self) -> list[str]:
        """The recipe's fields that `--set` changes."""
        return [setting.partition("=")[0].strip() for setting in self.settings or ()]

    def chosen(self, name: str) -> Recipe:
        """Returns the recipe of that name with the options applied.

        Raises ValueError for an unknown name and for an option that would be ignored.
        """
        recipe = replace(self._named(name), languages=",".join(self.language or ()))
        return with_settings(recipe, self.settings or ())

    def _named(self, name: str) -> Recipe:
        if name == FINETUNE:
            return self._finetune()
        if name not in RECIPES:
            close = difflib.get_close_matches(name, RECIPE_NAMES, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise ValueError(
                "\n  ".join(
                    [f"no recipe {name!r}{meant} The recipes are", *map(_described, RECIPE_NAMES)]
                )
            )
        named = recipe_named(name, self.seed)
        if isinstance(named, CooperativeRecipe):
            return self._cooperative(named)
        if self.corpus is None or self.corpus == SCENES:
            return self._on_scenes(named)
        return self._on_corpus(named, self.corpus)

    def _finetune(self) -> Recipe:
        self._refuse_all_but(
            _OF_EVERY_CORPUS,
            f"{FINETUNE} takes its encoder and image source from --init; drop the option, or train "
            "a recipe",
        )
        if self.corpus is None:
            raise ValueError(f"{FINETUNE} needs --corpus: scenes, emoji or a path")
        rounds = _FINETUNE_ROUND_COUNT if self.rounds is None else self.rounds
        recipe = finetune(self.corpus, rounds, self.seed)
        return as_trained(recipe, self.init or default_checkpoint())

    def _cooperative(self, recipe: CooperativeRecipe) -> Recipe:
        if self.pretrained is None:
            raise ValueError(f"recipe {recipe.name} begins with a published model: name its --from")
        if self.seed_count is not None:
            raise ValueError(f"--seeds measures no published folder of {recipe.name}: drop it")
        self._refuse_all_but(
            {"pretrained", *_OF_EVERY_CORPUS} - {"features", "init"},
            "the published model fixes it; drop the option",
        )
        source = "regions" if self.regions else None
        shaped = on_corpus(self._shaped(recipe, source), self.corpus or SCENES)
        return shaped if self.rounds is None else in_rounds(shaped, self.rounds)

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
            {*_OF_EVERY_CORPUS, *taken},
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
            _OPTIONS.get(name, flag_of(name))
            for name in ("pretrained", "image_source", *_OF_EVERY_CORPUS)
            if name not in taken and getattr(self, name) not in (None, False)
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
