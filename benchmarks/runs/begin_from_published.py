"""Trains a random model of each published family on scenes, exports it, and compares its answers.

    python -m benchmarks.runs.begin_from_published [--families all] [--steps 300] [--base uniter]

Prints a row of a table for each family: recall on dev scenes before and after, from the folder
that the run wrote; the largest difference between the trainer's and the export's logits, or
embeddings where there are none; seconds. `--base` takes one round of a model of full size instead,
and prints the largest memory of its process. Each family has a process of its own.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch

from tandem.corpus.records import Record
from tandem.corpus.scenes.drawing import ScenePng
from tandem.corpus.scenes.nouns import Noun, nouns_of
from tandem.corpus.scenes.records import scene_records
from tandem.lab.training import train as training
from tandem.lab.training.data.batches import ImageTextBatch
from tandem.lab.training.dev_recall import dev_recall
from tandem.lab.training.published.contents import ContentImages, PublishedContents
from tandem.lab.training.published.learner import PublishedLearner, starting_learner
from tandem.lab.training.recipes.named_recipes import cooperative
from tandem.lab.training.recipes.recipe import CooperativeRecipe, on_corpus
from tandem.lab.training.sources.record_pairs import RecordPairs
from tandem.lab.training.sources.record_source import RecordSource
from tandem.model_io.repository.manifest import model_file
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.exported import ExportedModel
from tandem.modeling.export.published_export import export_published
from tandem.modeling.families.reader import read_published_model
from tests.support.training.published_starts import (
    BASE,
    FAMILIES,
    MODES,
    OF_REGIONS,
    SMALL,
    Size,
    write_start,
)
from tests.support.training.scene_regions import write_scene_regions

_TRAIN_COUNT, _DEV_COUNT, _DEV_FAMILIES = 1_000, 400, 100
_HEAD: Final = """| family | mode | BE R@1 | BE R@10 | CE R@1 | mean recall | difference | seconds |
| --- | --- | --- | --- | --- | --- | --- | --- |"""
_BASE_HEAD: Final = """| family | mode | million weights | GiB at most | seconds |
| --- | --- | --- | --- | --- |"""


def scenes(family: str, split: str, count: int) -> list[Record]:
    """Returns scenes with their English captions alone.

    For pixels they are of one kind of drawing, of twelve nouns: more would take longer to see.
    """
    drawn = scene_records(split, 1, 4 * 100_000)  # type: ignore[arg-type]
    if family not in OF_REGIONS:
        known = set(nouns_of("train")[:12])
        drawn = (replace(each, family=each.record_id) for each in drawn if _nouns(each) <= known)
    return [
        replace(each, captions=tuple(c for c in each.captions if c.language == "en"))
        for each in islice(drawn, count)
    ]


def _nouns(record: Record) -> set[Noun | None]:
    """Returns the noun of a scene of one kind of drawing, and None as well of another."""
    assert isinstance(record.image, ScenePng)
    first, *others = record.image.scene.groups
    return {first.noun, *([None] if others else [])}


def small_recipe(family: str, start: Path, steps: int) -> CooperativeRecipe:
    """Returns the recipe of a small model of random weights, which softmax separates first."""
    shortened = replace(
        on_corpus(cooperative(1), "scenes"),
        mode=MODES.get(family, "joint"),
        pretrained=str(start),
        image_source="regions" if family in OF_REGIONS else "grid",
        precision="fp32",
        dropout=0.0,
        learning_rate=1e-3,
        round_count=steps,
        dev_every_round_count=steps,
        softmax_round_count=steps,
        be_batch_size=32,
        ce_family_count=32,
        dev_family_count=_DEV_FAMILIES,
    )
    return shortened.parts()[""]


@dataclass(frozen=True)
class Prepared:
    """A recipe, and what it reads."""

    recipe: CooperativeRecipe
    train: list[Record]
    dev: list[Record]
    regions: Path | None


def trained(prepared: Prepared, folder: Path) -> PublishedLearner:
    """Runs the recipe and returns its model as it was after the last step, which was kept."""
    learners: list[PublishedLearner] = []

    def start(recipe: CooperativeRecipe) -> Any:  # noqa: ANN401
        learner, texts = starting_learner(recipe)
        learners.append(learner)
        return learner, texts

    source = RecordSource(prepared.train, prepared.dev, regions=prepared.regions)
    vars(training)["starting_learner"] = start  # so that the model is known while it learns
    training.train(prepared.recipe, source, folder, lambda *_: None)
    return learners[0].eval()


def dev_batch(prepared: Prepared) -> tuple[PublishedLearner, ImageTextBatch]:
    """Returns the recipe's starting model, and a dev scene of each of the first families."""
    learner, texts = starting_learner(prepared.recipe)
    contents = PublishedContents(learner.config, texts.preprocessor, prepared.regions)
    dev = prepared.dev
    records = [dev[members[0]] for members in RecordPairs(dev).families[:_DEV_FAMILIES]]
    images = ContentImages(contents, records).of(range(len(records)))
    batch = ImageTextBatch(texts.batch([each.captions[0].text for each in records]), *images)
    return learner.eval(), batch


@torch.inference_mode()
def exported_difference(
    learner: PublishedLearner, recipe: CooperativeRecipe, written: Path, batch: ImageTextBatch
) -> float:
    """Returns the largest difference between the trainer's and the export's answers.

    These are match logits, or similarities of a bi-encoder alone.
    """
    made, repository = read_published_model(written), written.parent / "repository"
    towers, reranker = made, None
    if made.region_joint is None and made.bi_encoder is None:
        captions = ["two dogs"]
        towers = read_published_model(
            write_start("clip", written.parent / "towers", captions, SMALL)
        )
        reranker = made
    manifest = export_published(towers, repository, Precision.FP32, reranker=reranker)
    files = {name: model_file(repository, name) for name in manifest.models}
    parts = ExportedModel.load(manifest, files).parts
    ids, mask, contents = batch.texts.ids, batch.texts.mask, batch.tokens
    if not recipe.trains_ce:
        images_ND = learner.embed_images(contents, 0, batch.image_mask)
        ours = learner.embed_texts(ids, mask) @ images_ND.T
        theirs = parts["text_encoder"](ids, mask) @ parts["image_encoder"](contents).T
        return float((theirs - ours).abs().max())
    ours = learner.match_logits(ids, mask, contents, batch.image_mask)
    if made.region_joint is not None:
        theirs = parts["joint_encoder"](ids, mask, contents, batch.image_mask)[1]
    else:
        tokens = (
            parts["pair_image_encoder"](contents)
            if reranker
            else parts["image_encoder"](contents)[1]
        )
        assert made.cross_encoder is not None
        if (first_id := made.cross_encoder.text.first_id) is not None:
            ids = ids.index_fill(1, torch.tensor([0]), first_id)
        present = torch.ones(tokens.shape[:2], dtype=torch.int64)
        theirs = parts["pair_encoder"](ids, mask, tokens, present)
    return float((theirs[:, 0] - ours).abs().max())


def small_row(family: str, steps: int) -> str:
    """Returns the family's row of the table."""
    with tempfile.TemporaryDirectory() as made:
        folder, began = Path(made), time.monotonic()
        ready = prepare(family, folder, SMALL, steps)
        recipe, learner = ready.recipe, trained(ready, folder / "trained")
        seconds = time.monotonic() - began
        before, batch = dev_batch(ready)
        written = replace(recipe, pretrained=str(folder / "trained"))
        recalls = [
            dev_recall(each, batch, 0, recipe)
            for each in (before, starting_learner(written)[0].eval())
        ]
        difference = exported_difference(learner, recipe, folder / "trained", batch)

    def shown(name: str) -> str:
        values = [getattr(each, name) for each in recalls]
        return " → ".join("" if value is None else f"{value:.0f}" for value in values).strip(" →")

    means = [each.be_mean_recall if recipe.trains_be else each.ce_mean_recall for each in recalls]
    return (
        f"| {family} | {recipe.mode} | {shown('be_r1')} | {shown('be_r10')} | {shown('ce_r1')} | "
        f"{means[0]:.1f} → {means[1]:.1f} | {difference:.1e} | {seconds:.0f} |"
    )


def base_row(family: str) -> str:
    """Returns the cost of one round of a model of full size, with layers computed again."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ready = prepare(family, folder, BASE, 1)
        sizes: dict[str, Any] = {"be_batch_size": 16, "ce_family_count": 8, "dev_family_count": 2}
        recipe = replace(ready.recipe, has_checkpointing=True, **sizes)
        began = time.monotonic()
        learner = trained(replace(ready, recipe=recipe), folder / "trained")
        seconds = time.monotonic() - began
        count = sum(each.numel() for each in learner.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"| {family} | {recipe.mode} | {count / 1e6:.0f} | {peak:.1f} | {seconds:.0f} |"


def prepare(family: str, folder: Path, size: Size, steps: int) -> Prepared:
    """Writes the family's start and, where it reads them, the scenes' regions."""
    train, dev = scenes(family, "train", _TRAIN_COUNT), scenes(family, "val", _DEV_COUNT)
    captions = (caption.text for each in train + dev for caption in each.captions)
    recipe = small_recipe(family, write_start(family, folder / "start", captions, size), steps)
    if family not in OF_REGIONS:
        return Prepared(recipe, train, dev, None)
    regions = write_scene_regions(folder / "regions.safetensors", train + dev)
    return Prepared(recipe, train, dev, regions)


def main() -> None:
    """Runs each family in a process of its own, and prints its row as soon as it has one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default="all", help="all, or names with commas")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--base", help="names of families of which to take one full-size round")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row:
        print(base_row(asked.row) if asked.base else small_row(asked.row, asked.steps), flush=True)
        return
    chosen = asked.base or asked.families
    names = list(FAMILIES) if chosen == "all" else chosen.split(",")
    print(_BASE_HEAD if asked.base else _HEAD, flush=True)
    for name in names:
        base = ["--base", name] if asked.base else []
        command = [sys.executable, "-m", "benchmarks.runs.begin_from_published", "--row", name]
        subprocess.run([*command, *base, "--steps", str(asked.steps)], check=True)


if __name__ == "__main__":
    main()
