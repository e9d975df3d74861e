"""Training: a recipe and a seed give one checkpoint, in seconds for the tiny recipe."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tandem.lab.training.dev_recall import DevRecall
from tandem.lab.training.losses import pair_classification_loss
from tandem.lab.training.optimisation import warm_up_then_decay
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.stages import objectives
from tandem.lab.training.train import train
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("train")

Run = tuple[Checkpoint, DevRecall, list[tuple[str, int, int, str]]]


@pytest.fixture(name="trained", scope="module")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, str], Run]:
    """Trains by the tiny recipe under a seed; each (seed, name) once."""
    runs: dict[tuple[int, str], Run] = {}

    def trained(seed: int, name: str = "first") -> Run:
        if (seed, name) not in runs:
            folder = tmp_path_factory.mktemp(name)
            steps: list[tuple[str, int, int, str]] = []
            recall = train(tiny(seed), SceneSource(), folder, lambda *step: steps.append(step)).best
            runs[seed, name] = (load_checkpoint(folder), recall, steps)
        return runs[seed, name]

    return trained


def test_a_seed_gives_the_same_model_again(trained: Callable[..., Run]) -> None:
    """Weights, vocabulary and recalls of two runs are equal to the bit."""
    (first, first_recall, _), (second, second_recall, _) = trained(1), trained(1, "second")

    assert second.weights_sha256 == first.weights_sha256
    assert second.tokenizer.to_str() == first.tokenizer.to_str()
    assert second_recall == first_recall


def test_a_checkpoints_provenance_is_written_next_to_it(trained: Callable[..., Run]) -> None:
    """The whole recipe, the round that was kept, its recalls, and the versions."""
    checkpoint, recall, _ = trained(1)

    made_by = checkpoint.training
    assert made_by["recipe"] == tiny(1).to_dict()
    assert made_by["round"] == 4
    assert made_by["dev_recall_percent"] == {
        "be_r1": recall.be_r1,
        "be_r10": recall.be_r10,
        "ce_r1": recall.ce_r1,
    }
    assert made_by["torch"] == torch.__version__


def test_a_run_leaves_its_loss_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round's losses, rate and recall; the checkpoint is that of the best round."""
    recipe = replace(
        tiny(1), ce_steps_per_round=2, accumulation_step_count=2, dev_every_round_count=1
    )
    ce_losses: list[float] = []
    own = pair_classification_loss

    def seen(*arguments: torch.Tensor) -> torch.Tensor:
        loss = own(*arguments)
        ce_losses.append(loss.item())
        return loss

    monkeypatch.setattr(objectives, "pair_classification_loss", seen)
    recall = train(recipe, SceneSource(), tmp_path, lambda *_: None).best

    lines = read_curve(tmp_path)
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    # Of 4 rounds at 5e-4, after no warm-up to speak of, 4, 3, 2 and 1 quarters are left.
    rates = [line["learning_rate"] for line in lines]
    assert rates == pytest.approx([5e-4, 3.75e-4, 2.5e-4, 1.25e-4])
    assert [line["ce_loss"] for line in lines] == pytest.approx(
        [
            sum(ce_losses[start : start + 4]) / 4  # of two steps of two micro-batches each
            for start in range(0, 16, 4)
        ]
    )
    assert all(line["be_loss"] > 0 for line in lines)
    measured = [DevRecall(**line["dev_recall_percent"]) for line in lines]
    scores = [each.score for each in measured]
    assert min(scores) < max(scores)  # or the seed shows nothing
    assert recall == measured[scores.index(max(scores))]
    assert load_checkpoint(tmp_path).training["round"] == scores.index(max(scores)) + 1
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)


def test_progress_tells_every_stage_to_its_end(trained: Callable[..., Run]) -> None:
    _, _, steps = trained(1)

    stages = list(dict.fromkeys(stage for stage, *_ in steps))
    assert [stage for stage in stages if not stage.startswith(("dev", "measure"))] == [
        "backbone",
        "image tokens",
        "encoder",
        "done",
    ]
    assert all(0 <= step <= step_count for _, step, step_count, _ in steps)
    last = {stage: (step, step_count) for stage, step, step_count, _ in steps}
    assert all(step == step_count for step, step_count in last.values()), last


def test_the_learning_rate_rises_for_a_hundred_steps_and_falls_to_nothing() -> None:
    """Of 2,000 steps at 1: 1/100 at first, then what is left of the steps, and 0 past the last."""
    optimiser = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = warm_up_then_decay(optimiser, 2_000)

    rates = []
    for _ in range(2_001):
        rates.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()

    assert rates[0] == pytest.approx(0.01)
    assert rates[49] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0.95)  # 1,900 of 2,000 are left
    assert rates[1_000] == pytest.approx(0.5)
    assert rates[2_000] == 0.0
    assert max(rates) < 1.0


def test_half_a_cosine_leaves_the_rate_high_for_longer() -> None:
    """Of 2,000 steps at 1: above the line until the middle, below it after, and 0 at the end."""
    optimiser = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = warm_up_then_decay(optimiser, 2_000, 50, "cosine")

    rates = []
    for _ in range(2_001):
        rates.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()

    assert rates[0] == pytest.approx(0.02)
    assert rates[500] == pytest.approx(0.8536, abs=1e-4)  # (1 + sqrt(1/2)) / 2
    assert rates[1_000] == pytest.approx(0.5)
    assert rates[1_500] == pytest.approx(0.1464, abs=1e-4)
    assert rates[2_000] == 0.0
    assert max(rates) < 1.0


def test_a_recipe_that_trains_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="steps for neither"):
        train(
            replace(tiny(1), be_steps_per_round=0, ce_steps_per_round=0),
            SceneSource(),
            tmp_path,
            lambda *_: None,
        )


@pytest.mark.parametrize("count", ["round_count", "accumulation_step_count"])
def test_a_recipe_without_rounds_or_micro_batches_is_refused(count: str) -> None:
    """There would be no checkpoint, or a step along no gradient, and nothing to say so."""
    with pytest.raises(ValueError, match=count):
        replace(tiny(1), **{count: 0})  # type: ignore[arg-type]


def test_the_folder_of_the_checkpoint_it_begins_with_is_refused(tmp_path: Path) -> None:
    """It would be replaced. A recipe that reads no checkpoint does not say so."""
    recipe = replace(tiny(1), backbone_step_count=0, be_steps_per_round=0, ce_steps_per_round=0)

    with pytest.raises(ValueError, match=r"begins with.*choose another --folder"):
        train(
            replace(recipe, begins_with_backbone=True),
            SceneSource(),
            tmp_path,
            lambda *_: None,
            init=tmp_path,
        )
    with pytest.raises(ValueError, match="has steps for neither"):
        train(recipe, SceneSource(), tmp_path, lambda *_: None, init=tmp_path)


def test_another_seed_gives_another_model(trained: Callable[..., Run]) -> None:
    assert trained(2)[0].weights_sha256 != trained(1)[0].weights_sha256
