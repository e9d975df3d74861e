"""Describes a checkpoint in a report: what it is, what it began with, and what it has seen."""

from collections.abc import Mapping
from typing import Any, Final

from torch import nn

from tandem.corpus.scenes.records import FAMILY_SIZE
from tandem.lab.evaluation.gallery import GalleryDigest
from tandem.modeling.config import JointConfig
from tandem.modeling.trained_pictures import TrainedPictures

_UNRECORDED: Final = "not recorded"
_BACKBONE: Final = "image_backbone."


def origin_about(
    model: nn.Module, config: JointConfig, training: Mapping[str, Any]
) -> dict[str, str]:
    total = sum(each.numel() for each in model.parameters())
    of_backbone = [
        each.numel() for name, each in model.named_parameters() if name.startswith(_BACKBONE)
    ]
    parts = list(_recipes(training).items())
    vision = next((str(each["vision"]) for _, each in parts if each.get("vision")), "")
    return {
        "parameters": f"{total:,}, of which {sum(of_backbone):,} are the image backbone's",
        "features": f"{config.image_source} {vision}".strip()
        + ("" if config.image_source == "regions" else f", {config.image_size} pixels"),
        "trained on": _joined([(role, _corpus(each)) for role, each in parts]),
        "began with": _joined([(role, _beginning(each)) for role, each in parts]),
    }


def trained_names(
    known: TrainedPictures | None,
    training: Mapping[str, Any],
    digest: GalleryDigest,
    corpus: str,
    split: str,
    seed: int,
) -> list[str] | None:
    """Returns the records whose pictures ask and were trained on; None if that is not recorded.

    Scenes are drawn and have no files: those of the training split with the recipe's own seed were
    trained on, as far as its pool goes.
    """
    names, of_scenes = list(digest.pictures), []
    recipes = _recipes(training).values()
    if corpus == "scenes":
        pools = [
            each.get("pool_family_count", 0) * FAMILY_SIZE
            for each in recipes
            if each.get("corpus", "scenes") == corpus
            and each.get("seed") == seed
            and split == "train"
        ]
        of_scenes = names[: max(pools, default=0)]
    elif known is None:
        reads_files = any(each.get("corpus", "scenes") != "scenes" for each in recipes)
        return None if not recipes or reads_files else []
    which = known.which(digest.pictures.values()) if known else [False] * len(names)
    of_files = [name for name, is_trained in zip(names, which, strict=True) if is_trained]
    return list(dict.fromkeys([*of_scenes, *of_files]))


def _recipes(training: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the recipes that made a checkpoint, by role; a single one has no role."""
    if recipe := training.get("recipe"):
        return {"": recipe}
    parts = training.get("combined_of", {})
    return {role: part["recipe"] for role, part in parts.items() if part.get("recipe")}


def _corpus(recipe: Mapping[str, Any]) -> str:
    digest = str(recipe.get("corpus_sha256") or "")[:12]
    count = f"{recipe['pool_family_count']:,} families" if "pool_family_count" in recipe else ""
    return ", ".join(filter(None, (str(recipe.get("corpus", "scenes")), digest, count)))


def _beginning(recipe: Mapping[str, Any]) -> str:
    checkpoint = f"weights {str(recipe.get('init_weights_sha256', ''))[:12]}"
    if recipe.get("begins_trained"):
        return f"a checkpoint, {checkpoint}"
    if recipe.get("begins_with_towers"):
        return f"a checkpoint's two towers, {checkpoint}"
    parts = [_published(recipe, "pretrained") or "random weights"]
    if recipe.get("begins_with_backbone"):
        parts.append(f"a checkpoint's image backbone, {checkpoint}")
    elif vision := _published(recipe, "vision"):
        parts.append(vision)
    elif str(recipe.get("image_source", "")).startswith("efficientnet_lite0"):
        parts.append("EfficientNet-Lite0 as published")
    return " and ".join(parts)


def _published(recipe: Mapping[str, Any], role: str) -> str:
    name = recipe.get(role)
    digest = str(recipe.get(f"{role}_weights_sha256", ""))
    return f"{name}, weights {digest[:12]}" if name else ""


def _joined(parts: list[tuple[str, str]]) -> str:
    return "; ".join(f"{role}: {text}" if role else text for role, text in parts) or _UNRECORDED
