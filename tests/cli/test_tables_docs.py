"""docs/tables.md: its tables are read as the page says, and its commands and its Python run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.client import Client
from tandem.client.testing import FakeServer
from tandem.contract.filtering.attributes import Attributes

PAGE = (Path(__file__).parents[2] / "docs/tables.md").read_text()


def blocks(language: str) -> list[str]:
    """Returns the page's examples in the language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_stores_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the commands and from Python; what the commands say is on the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name, table in zip(("shop.csv", "prices.csv"), blocks("csv"), strict=True):
        Path(name).write_text(table)
    commands = "".join(blocks("sh")).splitlines()
    with FakeServer() as fake, Client(fake.address) as client:

        def run(command: str) -> Result:
            words = [*shlex.split(command)[1:], "--address", fake.address]
            return CliRunner().invoke(app, words)

        def stored() -> dict[str, Attributes]:
            found = client.list_items(index_id="shop", attributes_included=True)
            return {each.item_id: each.attributes for each in found}

        results = [run(command) for command in commands[:2]]
        before = stored()
        results += [run(command) for command in commands[2:]]
        after = stored()
        Path("prices.csv").write_text("id,price\nnone,1\ncup-2,2\n")
        missing = run("tandem set prices.csv --index shop")
        code = blocks("python")[0].replace("127.0.0.1:7400", fake.address)
        exec(compile(code, "docs/tables.md", "exec"), {})
        from_python = stored()

    assert [(each.exit_code, each.output) for each in results if each.exit_code] == []
    assert "the column 'on sale' is the attribute on_sale" in results[0].output
    cup = {"price": 19.99, "stock": 3, "added": "2026-11-28", "on_sale": True, "zip": "01067"}
    assert before["cup-1"] == {**cup, "split": "test", "language": ()}
    assert "stock" not in before["jug-1"]
    assert "cup-2" in results[1].stdout
    assert "cup-1" not in results[1].stdout
    assert after["cup-1"] == {**cup, "price": 9.99, "sale": True, "split": "test", "language": ()}
    assert after["jug-1"] == before["jug-1"]
    assert "cup-1" in results[3].stdout
    assert missing.exit_code == 1
    assert "none: ITEM_NOT_FOUND" in missing.output
    assert "shop: 1 items changed, 1 not" in missing.output
    assert from_python["cup-1"] == {**cup, "added": "2026-11-28"}
