"""docs/sync.md: its commands run, print what it shows, and leave the index equal to the folder."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tests.cli.test_jobs import Told, _told, write
from tests.cli.test_sync import contents, on_disk

__all__ = ["_told"]

PAGE = (Path(__file__).parents[2] / "docs/sync.md").read_text(encoding="utf-8")


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.cli.ingest.sent_items._SETTLED_SECONDS", 0.0)
    monkeypatch.setenv("TANDEM_ADDRESS", told.address)
    monkeypatch.chdir(tmp_path)
    photos = tmp_path / "photos"
    for name in ("2025/blurred", "2025/lake", "2025/sea", "Rome/bridge", "Rome/gate"):
        write(photos / f"{name}.jpg", name)
    assert CliRunner().invoke(app, ["sync", "photos"]).exit_code == 0
    (photos / "Rome").rename(photos / "Rome 2022")
    (photos / "2025/blurred.jpg").unlink()
    write(photos / "2025/lake.jpg", "another lake")
    write(photos / "2026/new.jpg", "new")

    [block] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    dry, real = (CliRunner().invoke(app, shlex.split(line)[1:]) for line in block.splitlines())

    assert f"$ tandem sync photos --dry-run\n{dry.stdout}```" in PAGE
    assert real.exit_code == 0
    assert contents(told) == on_disk(photos)
    [unit] = re.findall(r"^ExecStart=\S+/tandem (.*)$", PAGE, re.MULTILINE)
    assert CliRunner().invoke(app, [unit.split()[0], "--help"]).exit_code == 0
