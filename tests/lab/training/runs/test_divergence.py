"""A run whose numbers are none any more: it ends by name, and what it leaves can be used."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import tandem.lab.training.recipes.recipe as recipe_module
from tandem.lab.training.optimisation import NotFinite, step
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.runs.run import TrainingDiverged
from tandem.lab.training.runs.run_state import FILE_NAME, RunStateFile
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.stages.objectives import Objectives
from tandem.lab.training.train import train
from tandem.modeling.checkpoint import WeightsNotFinite, load_checkpoint, save_checkpoint
from tandem.modeling.stored_weights import not_finite
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_model, tiny_tokenizer

RECIPE = replace(
    tiny(1), backbone_step_count=1, round_count=8, dev_every_round_count=4, dev_family_count=2
)
BAD_ROUND = 6
Spoil = Callable[[Tensor, Objectives], Tensor]


def run(folder: Path, recipe: Recipe = RECIPE, *, resume: bool = False) -> None:
    train(recipe, SceneSource(), folder, lambda *_: None, state_every_step_count=2, resume=resume)


def spoil_weights(loss: Tensor, objectives: Objectives) -> Tensor:
    """Returns the loss, and has the step behind it make a weight infinite."""

    def fill(parameter: Tensor) -> None:
        parameter.data.fill_(math.inf)

    for parameter in objectives._model.joint_encoder.parameters():
        parameter.register_post_accumulate_grad_hook(fill)
    return loss


SPOILS: dict[str, Spoil] = {
    "NaN": lambda loss, _: loss * math.nan,
    "infinite weights": spoil_weights,
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_diverging_run_keeps_its_best_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Spoil
) -> None:
    """The step is named, the checkpoint and the state are those of before, and it can continue."""

    def spoiled(own: Callable[[Objectives, int], Tensor]) -> Callable[[Objectives, int], Tensor]:
        def loss(objectives: Objectives, round_number: int) -> Tensor:
            of_batch = own(objectives, round_number)
            return spoil(of_batch, objectives) if round_number == BAD_ROUND else of_batch

        return loss

    with monkeypatch.context() as patched:
        for use in ("be", "mlm", "ce", "ance"):
            own = getattr(Objectives, f"{use}_loss")
            patched.setattr(Objectives, f"{use}_loss", spoiled(own))
        with pytest.raises(TrainingDiverged) as caught:
            run(tmp_path)

    told = str(caught.value)
    assert f"step {BAD_ROUND} of 8 of stage encoder" in told
    assert f"{tmp_path} keeps its earlier checkpoint" in told
    assert "--resume continues" in told
    assert load_checkpoint(tmp_path).training["round"] == 4
    state = RunStateFile(tmp_path, RECIPE).load()
    assert state is not None
    assert state.step == 4
    assert not any(not_finite(tensors) for tensors in state.modules.values())
    assert "NaN" not in (tmp_path / "loss_curve.jsonl").read_text()
    assert len(read_curve(tmp_path)) == BAD_ROUND - 1

    run(tmp_path, resume=True)

    assert not (tmp_path / FILE_NAME).exists()
    assert len(read_curve(tmp_path)) == 8
    assert load_checkpoint(tmp_path)


def test_a_rate_that_is_too_high_ends_the_backbones_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A rate that a recipe may have takes longer to do it.
    monkeypatch.setattr(recipe_module, "within", lambda *_: None)
    recipe = replace(RECIPE, backbone_learning_rate=1e30, backbone_step_count=20)

    with pytest.raises(TrainingDiverged, match=r"of stage backbone.*lower learning_rate"):
        run(tmp_path, recipe)

    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_step_is_taken_along_a_gradient_of_nan(value: float) -> None:
    """The weights stay, to the last bit; along a finite one they change."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimiser = torch.optim.AdamW([weight], lr=0.1)
    weight.grad = torch.tensor([1.0, value, 1.0])

    with pytest.raises(NotFinite, match="the gradient's norm is"):
        step(optimiser, 1.0)

    assert torch.equal(weight.detach(), torch.ones(3))
    weight.grad = torch.ones(3)
    step(optimiser, 1.0)
    assert not torch.equal(weight.detach(), torch.ones(3))


@pytest.mark.parametrize("value", [math.nan, 70_000.0])
def test_a_weight_of_nan_is_not_saved(tmp_path: Path, value: float) -> None:
    """Nor one that float16 has no number for; what lay there stays as it was."""
    save_tiny_checkpoint(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model = tiny_model()
    model.joint_encoder.pooler.bias.data[2] = value

    with pytest.raises(WeightsNotFinite, match=r"joint_encoder\.pooler\.bias; nothing was saved"):
        save_checkpoint(tmp_path, model, tiny_tokenizer(), {})

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
