"""A fresh encoder on your own corpus: its words, its image tokens, every objective."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from tandem.corpus.records import Record
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.recipes.recipe import JointRecipe, on_corpus
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.sources.record_pairs import RecordPairs
from tandem.lab.training.sources.record_source import RecordSource, records_sha256
from tandem.lab.training.train import RunEnd, train
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.config import REGION_WIDTH, ImageSource, JointConfig
from tandem.modeling.image_sources.region_tokens import write_regions
from tests.support.modeling.published_folders import published_bert
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer
from tests.support.training.emoji_tuning import records

TRAIN, DEV = records("train", 100), records("val", 60)
FRESH = on_corpus(replace(tiny(1), image_size=48, round_count=6, dev_every_round_count=3), "emoji")
# Softmax, then the triplet; masked words with both; mined from the third round on.
EVERYTHING = on_corpus(
    replace(
        tiny(1),
        image_size=48,
        ance_steps_per_round=1,
        round_count=6,
        dev_every_round_count=3,
        mlm_steps_per_round=1,
        mlm_batch_size=8,
        ance_batch_size=4,
        ance_negative_count=2,
        mined_from_round_count=2,
        mined_refresh_round_count=2,
        mined_negative_share=0.5,
    ),
    "emoji",
)
Regions = Mapping[str, NDArray[np.float16]]


def of_regions(recipe: JointRecipe) -> JointRecipe:
    """Returns a recipe of the corpus as it reads a detector's regions."""
    return replace(recipe, image_source="regions", backbone_step_count=0)


def write_file(path: Path, made: Regions, region_count: int = 4) -> Path:
    path.parent.mkdir(exist_ok=True)
    write_regions(path, made, region_count)
    return path


def made_regions(some: list[Record], seed: int = 0) -> dict[str, NDArray[np.float16]]:
    """Returns 1 to 3 regions of each record: what the detector says of them is noise."""
    rng = np.random.default_rng(seed)
    return {
        each.record_id: rng.random((1 + number % 3, REGION_WIDTH)).astype(np.float16)
        for number, each in enumerate(some)
    }


def train_fresh(
    recipe: JointRecipe, folder: Path, regions: Path | None = None, **options: object
) -> RunEnd:
    """Trains on the first emoji, without progress unless it is given."""
    options.setdefault("progress", lambda *_: None)
    source = RecordSource(TRAIN, DEV, regions=regions)
    return train(recipe, source, folder, **options)  # type: ignore[arg-type]


def losses(folder: Path, use: str) -> list[float]:
    lines = read_curve(folder)
    return [line[f"{use}_loss"] for line in lines if f"{use}_loss" in line]


@pytest.mark.parametrize("source", ["grid", "patches", "regions"])
def test_every_objective_and_image_source(tmp_path: Path, source: ImageSource) -> None:
    recipe = replace(EVERYTHING, image_source=source, backbone_step_count=0)
    regions = (
        write_file(tmp_path / "regions.safetensors", made_regions(TRAIN + DEV))
        if source == "regions"
        else None
    )

    done = train_fresh(recipe, tmp_path / "out", regions=regions)

    checkpoint = load_checkpoint(tmp_path / "out")
    assert checkpoint.model.config.image_source == source
    assert checkpoint.model.config.encoder == "pre_norm"
    words = {word for each in TRAIN for c in each.captions for word in c.text.lower().split()}
    whole = words & set(checkpoint.tokenizer.get_vocab())
    assert len(whole) > 0.3 * len(words)
    asked = [DEV[members[0]] for members in RecordPairs(DEV).families]
    made_by = replace(
        recipe,
        pool_family_count=len(RecordPairs(TRAIN).families),
        corpus_sha256=records_sha256(TRAIN, asked, reads_pictures=source != "regions"),
        regions_sha256=sha256(regions.read_bytes()).hexdigest() if regions else "",
    )
    assert checkpoint.training["recipe"] == made_by.to_dict()
    assert done.best.be_r1 is not None
    assert done.best.ce_r1 is not None
    counts = {use: len(losses(tmp_path / "out", use)) for use in ("be", "ce", "mlm", "ance")}
    assert counts == {"be": 6, "ce": 6, "mlm": 6, "ance": 4}


def test_a_published_encoder_begins_it(tmp_path: Path) -> None:
    published_bert(tmp_path / "published")
    regions = write_file(tmp_path / "regions.safetensors", made_regions(TRAIN + DEV))
    recipe = of_regions(replace(FRESH, pretrained=str(tmp_path / "published")))

    train_fresh(recipe, tmp_path / "out", regions=regions)

    checkpoint = load_checkpoint(tmp_path / "out")
    config = checkpoint.model.config
    assert (config.encoder, config.image_source, config.layer_count) == ("post_norm", "regions", 3)
    assert config.vocabulary_size == 20
    assert checkpoint.training["recipe"]["pretrained_weights_sha256"]


def weights_of(folder: Path, regions: Regions, region_count: int) -> str:
    """Returns the digest of the weights after a run over the regions."""
    path = write_file(folder / "regions.safetensors", regions, region_count)
    train_fresh(of_regions(EVERYTHING), folder / "out", regions=path)
    return load_checkpoint(folder / "out").weights_sha256


def test_padding_regions_do_not_affect_training(tmp_path: Path) -> None:
    made = made_regions(TRAIN + DEV)
    other = dict(made)
    other[TRAIN[0].record_id] = other[TRAIN[0].record_id] + np.float16(1)

    plain = weights_of(tmp_path / "plain", made, 4)
    path = tmp_path / "plain" / "regions.safetensors"
    noised = _with_noise_behind(path, tmp_path / "noise.safetensors")
    train_fresh(of_regions(EVERYTHING), tmp_path / "noised", regions=noised)

    assert load_checkpoint(tmp_path / "noised").weights_sha256 == plain
    assert weights_of(tmp_path / "other", other, 4) != plain


def _with_noise_behind(path: Path, target: Path) -> Path:
    """Writes the same file with another number for zero in the rows that do not count."""
    with safe_open(path, "pt") as file:
        tokens_NRD, counts_N = file.get_tensor("tokens"), file.get_tensor("counts")
        notes = file.metadata()
    behind_NR = torch.arange(tokens_NRD.shape[1]) >= counts_N[:, None]
    assert behind_NR.any()
    tokens_NRD[behind_NR] = 5.0
    save_file({"tokens": tokens_NRD, "counts": counts_N}, target, notes)
    return target


def test_other_records_or_regions_are_another_recipe(tmp_path: Path) -> None:
    """By digests of captions, families and pictures of either split, and of the regions' file."""
    first, dev = TRAIN[0], DEV[:9]
    [caption, *others] = first.captions
    said = replace(first, captions=(replace(caption, text=f"{caption.text} too"), *others))
    spoken = replace(first, captions=(replace(caption, language="xx"), *others))
    changed = [said, spoken, replace(first, family="other"), replace(first, image=DEV[0].image)]
    digests = {records_sha256([each, *TRAIN[1:9]], dev) for each in (first, *changed)}
    digests.add(records_sha256(TRAIN[:9], [replace(dev[0], image=first.image), *dev[1:]]))
    assert len(digests) == 6
    assert records_sha256(TRAIN[:9], dev) in digests

    # A vocabulary is learned from the training split alone.
    texts = [caption.text for record in TRAIN for caption in record.captions]
    assert [*RecordSource(TRAIN, DEV).texts(FRESH)] == texts

    path, recipe = tmp_path / "regions.safetensors", of_regions(FRESH)
    shaped = []
    for seed in (0, 1):
        write_file(path, made_regions(TRAIN, seed))
        shaped.append(RecordSource(TRAIN, DEV, regions=path).shaped(recipe).to_dict())
    assert shaped[0] | {"regions_sha256": shaped[1]["regions_sha256"]} == shaped[1]
    assert shaped[0] != shaped[1]


@pytest.mark.parametrize(
    ("source", "has_file", "why"),
    [
        ("regions", False, "give it with --regions"),
        ("patches", True, r"regions.safetensors would be ignored: image tokens are of patches"),
    ],
)
def test_regions_and_pixels_are_not_mixed(
    tmp_path: Path, source: ImageSource, *, has_file: bool, why: str
) -> None:
    regions = write_file(tmp_path / "regions.safetensors", made_regions(TRAIN + DEV))
    recipe = replace(FRESH, image_source=source, backbone_step_count=0)

    with pytest.raises(ValueError, match=why):
        train_fresh(recipe, tmp_path / "out", regions=regions if has_file else None)

    assert not (tmp_path / "out").exists()


def test_a_folder_for_features_that_are_not_kept_is_refused(tmp_path: Path) -> None:
    recipe = replace(EVERYTHING, image_source="efficientnet_lite0", backbone_step_count=3)
    config = JointConfig(vocabulary_size=60, image_source="efficientnet_lite0")
    kept = tmp_path / "kept"
    asked = RecordSource((), (), features=kept)
    by_default = RecordSource((), (), default_features=kept)

    with pytest.raises(ValueError, match=f"--features {kept} would be ignored: only tokens of"):
        asked.read(recipe, config, tiny_tokenizer(), lambda *_: None)
    with pytest.raises(ValueError, match="dev has fewer than two families"):  # positive control
        by_default.read(recipe, config, tiny_tokenizer(), lambda *_: None)
    assert not kept.exists()


def test_a_checkpoint_of_regions_can_be_fine_tuned(tmp_path: Path) -> None:
    regions = write_file(tmp_path / "regions.safetensors", made_regions(TRAIN + DEV))
    train_fresh(of_regions(FRESH), tmp_path / "init", regions=regions)
    recipe = on_corpus(replace(tiny(1), image_size=48, begins_trained=True), "emoji")

    train_fresh(recipe, tmp_path / "out", init=tmp_path / "init", regions=regions)

    begun, after = (load_checkpoint(tmp_path / name) for name in ("init", "out"))
    assert after.training["recipe"]["init_weights_sha256"] == begun.weights_sha256
    assert after.tokenizer.to_str() == begun.tokenizer.to_str()
    assert _moved(begun, after)


def _moved(begun: Checkpoint, after: Checkpoint) -> bool:
    name = "joint_encoder.word.weight"
    return not torch.equal(begun.model.state_dict()[name], after.model.state_dict()[name])
