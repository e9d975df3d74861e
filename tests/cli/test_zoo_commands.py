"""`tandem train zoo`, `models add` and `evaluate` of models of the zoo, as typed."""

from pathlib import Path

from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.model_io.repository.manifest import read_manifest
from tests.support.zoo.tiny_zoo import save_tiny_zoo


def test_two_models_are_added_as_one(tmp_path: Path) -> None:
    """One embeds and the other scores pairs; alone, that one finds nothing."""
    save_tiny_zoo(tmp_path / "be", "vse_pp")
    save_tiny_zoo(tmp_path / "ce", "saf")
    into = ["--model-repository", str(tmp_path / "repository"), "--precision", "fp32"]

    both = CliRunner().invoke(
        app,
        ["models", "add", str(tmp_path / "be"), "--cross-encoder", str(tmp_path / "ce"), *into],
    )
    alone = CliRunner().invoke(app, ["models", "add", str(tmp_path / "ce"), *into])

    assert both.exit_code == 0, both.output
    assert read_manifest(tmp_path / "repository").family == "zoo_vse_pp+zoo_saf"
    assert isinstance(alone.exception, ValueError)
    assert "which finds nothing by itself" in str(alone.exception)


def test_a_pair_scorer_is_evaluated_after_a_retriever(tmp_path: Path) -> None:
    save_tiny_zoo(tmp_path / "be", "vse_pp", max_text_tokens=256)
    save_tiny_zoo(tmp_path / "ce", "scan_i2t", max_text_tokens=256)
    asked = ["evaluate", "scenes", "--count", "8", "--rerank-k", "4", "--checkpoint"]

    alone = CliRunner().invoke(app, [*asked, str(tmp_path / "ce")])
    both = CliRunner().invoke(
        app, [*asked, str(tmp_path / "ce"), "--retriever", str(tmp_path / "be")]
    )

    assert isinstance(alone.exception, ValueError)
    assert "scores pairs and embeds nothing" in str(alone.exception)
    assert both.exit_code == 0, both.output
    assert "BE + CE 4" in both.output
