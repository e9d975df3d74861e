"""Training further: on records of any corpus, from a checkpoint, with its frozen backbone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tandem.corpus.readable_records import RecordUnreadable
from tandem.corpus.records import Record
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.runs.run import NOTE_STAGE
from tandem.lab.training.train import RunEnd
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_checkpoint import combine
from tandem.modeling.separate_encoders import encoders_in
from tests.support.modeling.published_folders import xlm_r_tokenizer
from tests.support.modeling.separate_checkpoint import save_be_and_ce
from tests.support.modeling.tiny_checkpoint import tiny_model, tiny_tokenizer
from tests.support.training.emoji_tuning import (
    RECIPE,
    records,
    save_untrained,
    train_further,
)


@pytest.fixture(name="init", scope="module")
def _init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init")
    save_untrained(folder)
    return folder


Tune = Callable[..., RunEnd]


@pytest.fixture(name="tune")
def _tune(init: Path) -> Tune:
    def tune(folder: Path, recipe: Recipe = RECIPE, **options: object) -> RunEnd:
        train_records = options.pop("train_records", records("train", 100))
        return train_further(recipe, init, train_records, records("val", 60), folder, **options)  # type: ignore[arg-type]

    return tune


def test_a_checkpoint_of_any_encoder_and_image_source_can_be_fine_tuned(tmp_path: Path) -> None:
    """BERT's layers, XLM-R's special tokens, whose first has the id 0, and its own image tokens.

    Its backbone stays to the bit, norms' statistics included, though the model was not trained.
    """
    config = JointConfig(
        vocabulary_size=xlm_r_tokenizer().get_vocab_size(),
        width=16,
        layer_count=1,
        head_count=2,
        encoder="post_norm",
        image_source="efficientnet_lite0",
    )
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "init", JointModel(config), xlm_r_tokenizer(), {})
    recipe = replace(RECIPE, round_count=2, dev_every_round_count=2)

    train_further(
        recipe,
        tmp_path / "init",
        records("train", 60),
        records("val", 30),
        tmp_path / "out",
    )

    before, after = load_checkpoint(tmp_path / "init"), load_checkpoint(tmp_path / "out")
    assert after.model.config == config
    assert after.training["recipe"]["image_source"] == "efficientnet_lite0"
    for name, weight in after.model.image_backbone.state_dict().items():
        assert torch.equal(weight, before.model.image_backbone.state_dict()[name]), name
    weights = [each.model.joint_encoder.image_project.weight for each in (before, after)]
    assert not torch.equal(*weights)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trained", "steps"),
    [
        ("be", {"be_steps_per_round": 1, "ce_steps_per_round": 0}),
        ("ce", {"be_steps_per_round": 0, "ce_steps_per_round": 2}),
    ],
)
def test_a_use_that_was_trained_alone_continues_alone(
    tmp_path: Path, init: Path, trained: str, steps: dict[str, int]
) -> None:
    """A BE's checkpoint trains no CE, whose head stays to the bit; a CE's trains no BE."""
    begun = load_checkpoint(init)
    save_checkpoint(tmp_path / "alone", begun.model, begun.tokenizer, {"recipe": steps})
    recipe = replace(RECIPE, round_count=2, dev_every_round_count=2)

    done = train_further(
        recipe,
        tmp_path / "alone",
        records("train", 60),
        records("val", 30),
        tmp_path / "out",
    )

    assert (done.best.be_r1 is None, done.best.ce_r1 is None) == (trained == "ce", trained == "be")
    lines = read_curve(tmp_path / "out")
    assert all(
        (f"{use}_loss" in line) == (use == trained) for line in lines for use in ("be", "ce")
    )
    before, after = (
        load_checkpoint(each).model.joint_encoder.state_dict() for each in (init, tmp_path / "out")
    )
    assert not torch.equal(before["word.weight"], after["word.weight"])
    head_stayed = torch.equal(before["classifier.weight"], after["classifier.weight"])
    assert head_stayed == (trained == "be")


def test_separate_encoders_learn_each_from_its_own_steps(tmp_path: Path) -> None:
    texts = tuple(c.text for each in records("train", 60) for c in each.captions)
    folders = save_be_and_ce(tmp_path, texts=texts)
    combine(*folders, tmp_path / "both")
    recipe = replace(RECIPE, round_count=3, dev_every_round_count=3)
    shared = (records("train", 60), records("val", 30))

    train_further(recipe, tmp_path / "both", *shared, tmp_path / "out")

    after = load_checkpoint(tmp_path / "out").model
    assert after.config.has_two_encoders
    be, ce = (part.state_dict() for part in encoders_in(after.joint_encoder))
    begun_be, begun_ce = (
        load_checkpoint(each).model.joint_encoder.state_dict() for each in folders
    )
    assert torch.equal(be["classifier.weight"], begun_be["classifier.weight"])
    assert not torch.equal(ce["classifier.weight"], begun_ce["classifier.weight"])
    assert not torch.equal(be["word.weight"], begun_be["word.weight"])
    assert not torch.equal(ce["word.weight"], begun_ce["word.weight"])


def test_a_checkpoint_that_reads_regions_is_refused(tmp_path: Path) -> None:
    """Pictures give none; before any of them is read."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(vocabulary_size=tokenizer.get_vocab_size())
    config = replace(model.config, image_source="regions")
    save_checkpoint(tmp_path / "init", JointModel(config), tokenizer, {})

    def unread() -> Iterator[Record]:
        raise AssertionError
        yield

    with pytest.raises(ValueError, match=r"reads a detector's file.*give it with --regions"):
        train_further(RECIPE, tmp_path / "init", unread(), unread(), tmp_path / "out")


@pytest.mark.parametrize(
    ("recipe", "taken"),
    [
        (RECIPE, 8),
        (replace(RECIPE, backbone_step_count=1, backbone_batch_size=10), 10),
    ],
)
def test_too_few_records_are_refused(
    tmp_path: Path, tune: Tune, recipe: Recipe, taken: int
) -> None:
    told: list[str] = []

    with pytest.raises(ValueError, match=f"takes {taken} families and the corpus has"):
        tune(
            tmp_path,
            recipe,
            train_records=records("train", 5),
            progress=lambda stage, *_: told.append(stage),
        )

    assert set(told) == {"train pictures read", "dev pictures read"}


def test_a_file_under_two_names_is_named(tmp_path: Path, init: Path) -> None:
    """Its captions are wrong for each other in train, and dev is better than on new pictures."""
    learned, dev = records("train", 60), records("val", 30)
    twins = [*learned[:-1], replace(learned[-1], image=learned[0].image)]
    notes: list[str] = []

    def told(stage: str, _step: int, _count: int, note: str) -> None:
        if stage == NOTE_STAGE:
            notes.append(note)

    recipe = replace(RECIPE, round_count=1, dev_every_round_count=1)
    train_further(recipe, init, learned, dev, tmp_path / "a", progress=told)
    assert notes == []
    leaked = [replace(dev[0], image=learned[5].image), *dev[1:]]
    train_further(recipe, init, twins, leaked, tmp_path / "b", progress=told)

    assert [note.partition(" pictures ")[0] for note in notes] == ["2 of 60 train", "1 of 6 dev"]
    assert "keep each file in one split" in notes[1]


def test_a_caption_of_ten_thousand_words_is_named(tmp_path: Path, tune: Tune) -> None:
    good = records("train", 100)
    caption = replace(good[77].captions[0], text="dog " * 10_000)
    long = replace(good[77], captions=(caption,))

    with pytest.raises(RecordUnreadable, match=f"{long.record_id}.*40,000 bytes"):
        tune(tmp_path, train_records=[*good[:77], long, *good[78:]])

    assert list(tmp_path.iterdir()) == []
