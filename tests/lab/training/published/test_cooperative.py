"""Training a published model as it is: what is written is read, exported and scored alike."""

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.lab.training import train as training
from tandem.lab.training.data.pair_pool import PairPool
from tandem.lab.training.data.pooled_images import ReadImages
from tandem.lab.training.published.learner import PublishedLearner, starting_learner
from tandem.lab.training.recipes.named_recipes import cooperative
from tandem.lab.training.recipes.recipe import CooperativeRecipe, Mode, on_corpus
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.runs.run import NOTE_STAGE
from tandem.lab.training.runs.run_state import RunStateInvalid
from tandem.lab.training.sources.record_pairs import RecordPairs
from tandem.lab.training.sources.record_source import RecordSource, content_reader
from tandem.model_io.repository.manifest import model_file
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.exported import ExportedModel
from tandem.modeling.export.published_export import export_published
from tandem.modeling.families.reader import read_published_model
from tests.support.modeling.region_checkpoints import uniter_weights, write_uniter
from tests.support.training.published_starts import (
    FAMILIES,
    MODES,
    OF_REGIONS,
    TINY,
    write_start,
)
from tests.support.training.scene_regions import write_scene_regions
from tests.support.training.small_runs import Stopped

TRAIN, DEV = list(scene_records("train", 1, 80)), list(scene_records("val", 1, 40))
CAPTIONS = [caption.text for each in TRAIN for caption in each.captions]


@dataclass(frozen=True)
class Start:
    """A random model of a family, and what it reads of scenes."""

    family: str
    folder: Path
    regions: Path | None

    def recipe(
        self, rounds: int = 1, mode: Mode | None = None, **changes: Any
    ) -> CooperativeRecipe:
        sizes: dict[str, Any] = {
            "precision": "bf16" if self.family == "vilt" else "fp32",
            "be_batch_size": 8,
            "ce_family_count": 4,
            "dev_family_count": 10,
        }
        recipe = replace(
            on_corpus(cooperative(1), "scenes"),
            mode=mode or MODES.get(self.family, "joint"),
            pretrained=str(self.folder),
            image_source="regions" if self.regions else "grid",
            dropout=0.0,
            learning_rate=1e-3,
            round_count=rounds,
            dev_every_round_count=rounds,
            softmax_round_count=rounds,
            **sizes | changes,
        )
        return recipe.parts()[""]

    def source(self, records: list[Record] = TRAIN, dev: list[Record] = DEV) -> RecordSource:
        return RecordSource(records, dev, regions=self.regions)

    def batches(self, learner: PublishedLearner, texts: Any) -> PairPool:
        images = ReadImages(content_reader(learner.config, self.regions), TRAIN)
        return PairPool(RecordPairs(TRAIN), images, texts, 64)


@pytest.fixture(name="regions", scope="session")
def _regions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scene_regions(tmp_path_factory.mktemp("regions") / "r.safetensors", TRAIN + DEV)


# Of each kind of model one; most faults of the others would show there.
IN_CI = ("oscar", "m3p", "vilt", "clip")


@pytest.fixture(
    name="start",
    params=[
        pytest.param(each, marks=() if each in IN_CI else pytest.mark.slow) for each in FAMILIES
    ],
)
def _start(request: pytest.FixtureRequest, tmp_path: Path, regions: Path) -> Start:
    return started(request.param, tmp_path / "start", regions)


def started(family: str, folder: Path, regions: Path) -> Start:
    """Writes a random model of the family."""
    write_start(family, folder, CAPTIONS, TINY)
    return Start(family, folder, regions if family in OF_REGIONS else None)


def test_every_weight_that_a_use_reads_learns_and_is_written_and_read(
    start: Start, tmp_path: Path
) -> None:
    """One BE and one CE step with layers computed again, whose gradients are those without.

    Only temperatures stay and BLIP-2's projections, which no loss here reads.
    """
    notes: list[str] = []
    # The smallest gradient moves a weight by the whole rate.
    recipe = start.recipe(has_checkpointing=True, adam_epsilon=1e-20)
    gradients = []
    for is_checkpointed in (True, False):
        torch.manual_seed(0)
        learner, texts = starting_learner(replace(recipe, has_checkpointing=is_checkpointed))
        batch = start.batches(learner, texts).match_batch(random.Random(1), 4)
        given = batch.texts.ids, batch.texts.mask, batch.tokens, batch.image_mask
        if recipe.trains_ce:
            learner.match_logits(*given).sum().backward()
        else:
            learner.embed_images(batch.tokens, 0, batch.image_mask)[:, 0].sum().backward()
        gradients.append([p.grad for p in learner.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 5
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))

    training.train(
        recipe,
        start.source(),
        tmp_path / "out",
        lambda stage, *_: notes.append(_[-1]) if stage == NOTE_STAGE else None,
    )

    before, _ = starting_learner(recipe)
    after, _ = starting_learner(replace(recipe, pretrained=str(tmp_path / "out")))
    changed = {n for n, p in before.named_parameters() if not torch.equal(p, after.state_dict()[n])}
    unmoved = {name for name, _ in before.named_parameters()} - changed
    # BLIP-2's head reads queries alone, so what the last layer makes of words has a gradient of 0.
    of_words = {name for name in unmoved if ".score_pair.layers.layer.0." in name}
    assert unmoved == (of_words if start.family == "blip-2" else set())
    stays = {
        "blip-2": [
            f"{side}_projection.{each}"
            for side in ("vision", "text")
            for each in ("weight", "bias")
        ],
        "clip": ["logit_scale"],
        "metaclip_2": ["logit_scale"],
        "siglip": ["logit_scale", "logit_bias"],
    }
    made_by = json.loads((tmp_path / "out" / "training.json").read_text())
    assert made_by["weights_without_gradient"] == stays.get(start.family, [])
    assert any("without a gradient" in note for note in notes) == (start.family in stays)
    if start.family == "oscar":
        assert any("Weights of other tasks are left out: cls.seq_rel" in note for note in notes)
        assert any("begins one of random weights" in note for note in notes)


@pytest.mark.parametrize("family", ["uniter", "blip"])
def test_a_trained_folder_scores_as_the_trainer_did(
    family: str, tmp_path: Path, regions: Path
) -> None:
    """Twenty rounds of both uses; the export of the folder has the logits of the last step."""
    start = started(family, tmp_path / "start", regions)
    run = training.train(start.recipe(20), start.source(), tmp_path / "out", lambda *_: None)
    learner = run.model.eval()
    assert isinstance(learner, PublishedLearner)
    ids, mask, contents, present = _given_of(start)

    manifest = export_published(
        read_published_model(tmp_path / "out"), tmp_path / "repository", Precision.FP32
    )

    files = {name: model_file(tmp_path / "repository", name) for name in manifest.models}
    parts = ExportedModel.load(manifest, files).parts
    with torch.inference_mode():
        ours = learner.match_logits(ids, mask, contents, present)
        if family == "uniter":
            exported = parts["joint_encoder"](ids, mask, contents, present)[1]
        else:
            tokens = parts["image_encoder"](contents)[1]
            assert manifest.pair_text is not None
            first_id = manifest.pair_text.first_id
            assert first_id is not None
            pair_ids = ids.index_fill(1, torch.tensor([0]), first_id)
            all_count = torch.ones(tokens.shape[:2], dtype=torch.int64)
            exported = parts["pair_encoder"](pair_ids, mask, tokens, all_count)
        untrained = starting_learner(start.recipe())[0].eval().match_logits(*_given_of(start))
    assert (exported[:, 0] - ours).abs().max() < 1e-5
    assert (untrained - ours).abs().max() > 1e-2  # so that the start could be mistaken for it
    losses = [each["be_loss"] for each in read_curve(tmp_path / "out")]
    if family == "uniter":  # pixels take a random model longer
        assert sum(losses[-5:]) < sum(losses[:5])


def test_two_models_of_one_start_are_served_as_one(tmp_path: Path, regions: Path) -> None:
    """Sep+Coop: embeddings are the BE's and logits the CE's."""
    start = started("uniter", tmp_path / "start", regions)
    whole = replace(start.recipe(), mode="separate")
    for name, part in whole.parts().items():
        training.train(part, start.source(), tmp_path / name, lambda *_: None)
    be, ce = (read_published_model(tmp_path / name) for name in ("be", "ce"))

    manifest = export_published(be, tmp_path / "repository", Precision.FP32, reranker=ce)

    files = {name: model_file(tmp_path / "repository", name) for name in manifest.models}
    served = ExportedModel.load(manifest, files).parts["joint_encoder"]
    pair = _given_of(start)
    cls = torch.full((6, 1), 2), torch.ones(6, 1, dtype=torch.int64)
    assert be.region_joint is not None
    assert ce.region_joint is not None
    with torch.inference_mode():
        logits = [each(*pair)[1] for each in (served, ce.region_joint.joint, be.region_joint.joint)]
        images = [
            each(*cls, *pair[2:])[0]
            for each in (served, be.region_joint.joint, ce.region_joint.joint)
        ]
    for theirs, own, other in (logits, images):
        assert (theirs - own).abs().max() < 1e-5 < (theirs - other).abs().max()
    other = read_published_model(started("oscar", tmp_path / "other", regions).folder)
    with pytest.raises(ValueError, match="read texts or regions differently"):
        export_published(be, tmp_path, Precision.FP32, reranker=other)


def test_what_does_not_fit_a_run_is_named(tmp_path: Path, regions: Path) -> None:
    start = started("uniter", tmp_path / "start", regions)
    recipe, out = start.recipe(4), tmp_path / "out"

    def stop(stage: str, step: int, *_: object) -> None:
        if (stage, step) == ("encoder", 4):
            raise Stopped

    def run(source: RecordSource, folder: Path = out, **options: Any) -> None:
        training.train(recipe, source, folder, stop, state_every_step_count=2, **options)

    with pytest.raises(Stopped):
        run(start.source())
    with pytest.raises(RunStateInvalid, match="is of another recipe: corpus_sha256"):
        run(start.source(TRAIN[:60]), resume=True)
    with pytest.raises(ValueError, match="dev has fewer than two families"):
        run(start.source(dev=DEV[:4]), tmp_path / "new")  # of one family, so every recall is 100
    stranger = [replace(TRAIN[0], record_id="unknown"), *TRAIN]
    with pytest.raises(ValueError, match="no regions"):
        run(start.source(stranger), tmp_path / "new")
    with pytest.raises(ValueError, match="which would be mixed with it; choose"):
        run(start.source(), start.folder)
    (out / "modules.json").touch()
    with pytest.raises(ValueError, match=r"has modules\.json, which would be mixed with it"):
        run(start.source())
    narrow = write_uniter(tmp_path / "narrow", uniter_weights())
    recipe = replace(recipe, pretrained=str(narrow))
    with pytest.raises(ValueError, match=r"instead of \[n, 12\]; they are another detector's"):
        run(start.source(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def _given(pool: PairPool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch = pool.match_batch(random.Random(2), 6)
    return batch.texts.ids, batch.texts.mask, batch.tokens, batch.image_mask


def _given_of(start: Start) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _given(start.batches(*starting_learner(start.recipe())))
