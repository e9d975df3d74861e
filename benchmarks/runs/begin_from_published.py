"""Trains a random model of each published family on scenes, exports it, and compares its answers.

    python -m benchmarks.runs.begin_from_published [--families all] [--steps 300] [--base uniter]

Prints a row of a table for each family and mode that it allows, "separate" being the models of "be"
and "ce" together: recall on dev scenes before and after, from the folder that the run wrote; the
largest difference between the trainer's and the export's logits, or similarities where there are
none; processor seconds. `--base` takes one round of a model of full size instead,
and prints the largest memory of its process. Each family has a process of its own.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

import torch

from tandem.corpus.records import Record
from tandem.corpus.scenes.drawing import ScenePng
from tandem.corpus.scenes.nouns import Noun, nouns_of
from tandem.corpus.scenes.records import scene_records
from tandem.lab.training import train as training
from tandem.lab.training.data.batches import ImageTextBatch
from tandem.lab.training.data.pooled_images import ReadImages
from tandem.lab.training.dev_recall import DevRecall, dev_recall
from tandem.lab.training.published.learner import PublishedLearner, starting_learner
from tandem.lab.training.recipes.named_recipes import cooperative
from tandem.lab.training.recipes.recipe import CooperativeRecipe, Mode, on_corpus
from tandem.lab.training.sources.record_pairs import RecordPairs
from tandem.lab.training.sources.record_source import RecordSource, content_reader
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

_TRAIN_COUNT, _DEV_COUNT, _DEV_FAMILIES = 1_000, 400, 48
_RATES: Final[Mapping[str, float]] = {"uniter": 5e-4, "vilt": 3e-4, "blip": 2e-4, "blip-2": 2e-4}
"""By family; 1e-3 for others."""
_HEAD: Final = """| family | mode | BE R@1 | BE R@10 | CE R@1 | mean recall | difference | CPU s |
| --- | --- | --- | --- | --- | --- | --- | --- |"""
_BASE_HEAD: Final = """| family | mode | million weights | GiB at most | CPU s |
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
        learning_rate=_RATES.get(family, 1e-3),
        warm_up_step_count=steps,  # a tenth of them at most
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

    def of(self, mode: Mode) -> "Prepared":
        """Returns the same for another mode."""
        return replace(self, recipe=replace(self.recipe, mode=mode).parts()[""])


def dev_batch(prepared: Prepared) -> tuple[PublishedLearner, ImageTextBatch]:
    """Returns the recipe's starting model, and a dev scene of each of the first families."""
    learner, texts = starting_learner(prepared.recipe)
    content = content_reader(learner.config, prepared.regions)
    dev = prepared.dev
    records = [dev[members[0]] for members in RecordPairs(dev).families[:_DEV_FAMILIES]]
    images = ReadImages(content, records).of(range(len(records)))
    batch = ImageTextBatch(texts.batch([each.captions[0].text for each in records]), *images)
    return learner.eval(), batch


@dataclass(frozen=True)
class Trained:
    """One run: what it read, its model after the last step, and the folder that it wrote."""

    prepared: Prepared
    model: PublishedLearner
    folder: Path
    cpu_seconds: float

    @classmethod
    def of(cls, prepared: Prepared, folder: Path) -> Self:
        """Runs the recipe; the folder keeps the model after the last step too."""
        source = RecordSource(prepared.train, prepared.dev, regions=prepared.regions)
        began = time.process_time()
        model = training.train(prepared.recipe, source, folder, lambda *_: None).model
        assert isinstance(model, PublishedLearner), "the recipe's models are published ones"
        return cls(prepared, model.eval(), folder, time.process_time() - began)

    def written(self) -> PublishedLearner:
        """Returns the model of the folder."""
        recipe = replace(self.prepared.recipe, pretrained=str(self.folder))
        return starting_learner(recipe)[0].eval()


@torch.inference_mode()
def exported_difference(run: Trained, batch: ImageTextBatch, retriever: Path | None) -> float:
    """Returns the largest difference between the trainer's and the export's answers.

    These are match logits, or similarities of a bi-encoder alone. A CE is exported behind the BE
    of `retriever`, by default that of a random CLIP where its own family has none.
    """
    learner, made = run.model, read_published_model(run.folder)
    if retriever is None and made.region_joint is None and made.bi_encoder is None:
        retriever = write_start("clip", run.folder.with_name("clip"), ["two dogs"], SMALL)
    towers = made if retriever is None else read_published_model(retriever)
    reranker = None if retriever is None else made
    repository = Path(tempfile.mkdtemp(dir=run.folder.parent)) / "repository"
    manifest = export_published(towers, repository, Precision.FP32, reranker=reranker)
    files = {name: model_file(repository, name) for name in manifest.models}
    parts = ExportedModel.load(manifest, files).parts
    ids, mask, contents = batch.texts.ids, batch.texts.mask, batch.tokens
    if not run.prepared.recipe.trains_ce:
        images_ND = learner.embed_images(contents, 0, batch.image_mask)
        ours = learner.embed_texts(ids, mask) @ images_ND.T
        if made.region_joint is not None:
            nothing_N1D = torch.zeros_like(contents[:, :1])
            absent_N1 = torch.zeros_like(batch.image_mask[:, :1])
            cls_N1 = torch.full_like(absent_N1, made.region_joint.cls_id)
            joint = parts["joint_encoder"]
            texts_ND = joint(ids, mask, nothing_N1D, absent_N1)[0]
            theirs_ND = joint(cls_N1, torch.ones_like(cls_N1), contents, batch.image_mask)[0]
        else:
            texts_ND, theirs_ND = parts["text_encoder"](ids, mask), parts["image_encoder"](contents)
            theirs_ND = theirs_ND[0] if isinstance(theirs_ND, tuple) else theirs_ND
        return float((texts_ND @ theirs_ND.T - ours).abs().max())
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


def small_rows(family: str, steps: int) -> Iterator[str]:
    """Yields the family's rows of the table: of each mode that it allows."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ready = prepare(family, folder, SMALL, steps)
        start, batch = dev_batch(ready)
        modes: Sequence[Mode] = [MODES[family]] if family in MODES else ["joint", "be", "ce"]
        runs: dict[Mode, Trained] = {}
        for mode in modes:
            runs[mode] = run = Trained.of(ready.of(mode), folder / mode)
            recipe = run.prepared.recipe
            recalls = [dev_recall(each, batch, 0, recipe) for each in (start, run.written())]
            difference = exported_difference(run, batch, None)
            yield _row(family, mode, recalls, difference, run.cpu_seconds)
        if {"be", "ce"} <= runs.keys():
            be, ce = runs["be"], runs["ce"]
            both = SeparateModels(be.written(), ce.written())
            recalls = [dev_recall(each, batch, 0, ready.recipe) for each in (start, both)]
            difference = exported_difference(ce, batch, be.folder)
            yield _row(family, "separate", recalls, difference, be.cpu_seconds + ce.cpu_seconds)


class SeparateModels(PublishedLearner):
    """Embeds by the first model and scores pairs by the second, as they are served together."""

    def __init__(self, be: PublishedLearner, ce: PublishedLearner) -> None:
        torch.nn.Module.__init__(self)
        self.embed_texts, self.embed_images = be.embed_texts, be.embed_images  # type: ignore[method-assign]
        self.match_logits, self.pair_tokens = ce.match_logits, ce.pair_tokens  # type: ignore[method-assign]


def _row(
    family: str, mode: Mode, recalls: list[DevRecall], difference: float, cpu_seconds: float
) -> str:
    def shown(name: str, digits: int = 0) -> str:
        values = [getattr(each, name) for each in recalls]
        return " → ".join("" if v is None else f"{v:.{digits}f}" for v in values).strip(" →")

    mean = "ce_mean_recall" if mode == "ce" else "be_mean_recall"
    return (
        f"| {family} | {mode} | {shown('be_r1')} | {shown('be_r10')} | {shown('ce_r1')} | "
        f"{shown(mean, 1)} | {difference:.1e} | {cpu_seconds:.0f} |"
    )


def base_row(family: str) -> str:
    """Returns the cost of one round of a model of full size, with layers computed again."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ready = prepare(family, folder, BASE, 1)
        sizes: dict[str, Any] = {"be_batch_size": 16, "ce_family_count": 8, "dev_family_count": 2}
        recipe = replace(ready.recipe, has_checkpointing=True, **sizes)
        run = Trained.of(replace(ready, recipe=recipe), folder / "trained")
        count = sum(each.numel() for each in run.model.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"| {family} | {recipe.mode} | {count / 1e6:.0f} | {peak:.1f} | {run.cpu_seconds:.0f} |"


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
    """Runs each family in a process of its own, and prints its rows as soon as it has them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default="all", help="all, or names with commas")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--base", help="names of families of which to take one full-size round")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row:
        rows = [base_row(asked.row)] if asked.base else small_rows(asked.row, asked.steps)
        for row in rows:
            print(row, flush=True)
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
