"""The training grid's options are those of its commands and recipes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.bench.train_grid import QUESTIONS, RUNS, Base
from tandem.cli.app import app


def test_evaluate_accepts_the_options_of_the_grid(tmp_path: Path) -> None:
    """Refused, it would be so after hours of training. Here the checkpoint alone is wanting."""
    for question in QUESTIONS.values():
        command = ["evaluate", *question.arguments.split(), "--checkpoint", str(tmp_path)]

        result = CliRunner().invoke(app, command)

        assert result.exit_code == 1, result.output
        assert "is not a checkpoint" in str(result.exception)


def test_every_run_varies_the_base_as_it_was_cut() -> None:
    base = Base("compact", rounds=300, settings=("width=64", "head_count=2"))
    joint, other = (RUNS[run].recipe(3, base) for run in ("joint", "cls_pooling"))

    assert (joint.seed, joint.round_count, joint.softmax_round_count) == (3, 300, 100)
    assert (joint.width, joint.head_count, joint.embedding_pooling) == (64, 2, "mean")
    assert other.differing(joint.to_dict()) == ["embedding_pooling", "name"]
    with pytest.raises(ValueError, match="recipe compact has no field 'widht'; did you mean width"):
        Base("compact", settings=("widht=64",))(1)
