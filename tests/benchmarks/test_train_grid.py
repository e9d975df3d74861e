"""Tests that the training grid trains, measures, compares and resumes."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.bench.train_grid import QUESTIONS, RUNS, Base
from tandem.cli.app import app
from tandem.repository.precision import Precision, native_precision
from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("arguments", [each.arguments for each in QUESTIONS.values()])
def test_evaluate_accepts_the_options_of_the_grid(arguments: str, tmp_path: Path) -> None:
    """Refused, it would be so after hours of training. Here the checkpoint alone is wanting."""
    command = ["evaluate", *arguments.split(), "--checkpoint", str(tmp_path)]

    result = CliRunner().invoke(app, command)

    assert result.exit_code == 1, result.output
    assert "is not a checkpoint" in str(result.exception)


def test_every_run_varies_the_base_as_it_was_cut() -> None:
    """In fewer rounds, its stages scaled alike, and with the settings; each run has its own."""
    base = Base("compact", rounds=300, settings=("width=64", "head_count=2"))
    joint, other = (RUNS[run].recipe(3, base) for run in ("joint", "cls_pooling"))

    assert (joint.seed, joint.round_count, joint.softmax_round_count) == (3, 300, 100)
    assert (joint.width, joint.head_count, joint.embedding_pooling) == (64, 2, "mean")
    assert other.differing(joint.to_dict()) == ["embedding_pooling", "name"]
    with pytest.raises(ValueError, match="recipe compact has no field 'widht'; did you mean width"):
        Base("compact", settings=("widht=64",))(1)


@by_make_test_benchmarks
@pytest.mark.timeout(600)
def test_a_small_grid_compares_every_system_and_trains_no_run_twice(tmp_path: Path) -> None:
    """Joint and Sep of the tiny recipe, on small galleries; the second time all is there.

    What was made by another recipe is not taken for this one.
    """
    command = [
        *(sys.executable, "-m", "benchmarks.bench.train_grid", "--work", str(tmp_path)),
        *("--base", "tiny", "--seeds", "1", "--runs"),
        "joint,bi_encoder,cross_encoder_after_be,joint_on_emoji,sep_on_emoji",
        *("--questions", "scenes,every_pair,unseen_style,unseen_concepts"),
    ]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    other = Precision.FP32 if native_precision() is Precision.BF16 else Precision.BF16
    third = subprocess.run(
        [*command, "--precision", other.value], cwd=ROOT, capture_output=True, text=True
    )

    assert first.stdout.count("## ") == 4
    assert first.stdout.count("by language:") == 3
    assert (tmp_path / "dev_recall.png").is_file()
    head = "| order by | text→image: Joint | Sep | p | image→text: Joint | Sep | p |"
    assert first.stdout.count(head) == 4
    for order in ("BE", "BE + CE 20", "norm_add 0.5"):
        assert f"\n| {order} | " in first.stdout
    for of_a_seed in ("Joint 1", "Sep 1"):
        assert first.stdout.count(f"\n| {of_a_seed} | ") == 3
    assert second.stdout == first.stdout
    assert "unseen_style: Sep" in first.stderr
    assert "unseen_style" not in second.stderr
    assert third.returncode != 0
    assert "was made by another recipe than tiny is now" in third.stderr
