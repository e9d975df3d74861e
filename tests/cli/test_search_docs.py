"""docs/search.md: its Python and its commands run as they stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tests.support.orchestrator_svc.demo_index import demo_index

PAGE = (Path(__file__).parents[2] / "docs/search.md").read_text()
ADDRESS = "127.0.0.1:7400"


def blocks(language: str) -> list[str]:
    """Returns the page's examples in the language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(name="address", scope="module")
def _address() -> Iterator[str]:
    with demo_index() as address:
        yield address


@pytest.mark.parametrize("code", blocks("python"), ids=range(len(blocks("python"))))
def test_the_python_runs(code: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Against a served index; what it asserts holds."""
    assert ADDRESS in code

    exec(compile(code.replace(ADDRESS, address), "docs/search.md", "exec"), {})

    if "print" in code:
        assert capsys.readouterr().out


COMMANDS = [
    line.removeprefix("$ ")
    for block in blocks("console")
    for line in block.splitlines()
    if line.startswith("$ tandem ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(
    command: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queries.txt").write_text("two crabs\none bell\n")
    program, *arguments = shlex.split(command)
    assert program == "tandem"

    result = CliRunner().invoke(app, [*arguments, "--address", address])

    assert result.exit_code == 0, result.output
    assert "scenes-test-" in result.stdout or "fingerprint" in result.stdout
