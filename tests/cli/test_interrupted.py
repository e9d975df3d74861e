"""What Ctrl-C says of work that takes long."""

from pathlib import Path

import pytest
import typer

from tandem.cli.command_line import report_if_interrupted
from tandem.cli.train.train import _kept
from tandem.lab.training.recipes.named_recipes import default


def test_it_says_what_is_kept_and_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    with report_if_interrupted(lambda: "all of it"):
        pass
    with pytest.raises(typer.Exit) as ended, report_if_interrupted(lambda: "all of it"):
        raise KeyboardInterrupt

    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "interrupted: all of it\n"


def test_an_interrupted_run_says_whether_it_can_resume(tmp_path: Path) -> None:
    recipe = default()
    said = _kept(tmp_path, recipe)
    assert "same command" in said
    assert f"the first is kept after {recipe.dev_every_round_count} rounds" in said

    (tmp_path / "run_state.pt").touch()

    assert "--resume continues" in _kept(tmp_path, recipe)
