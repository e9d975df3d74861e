"""`tandem set`, `tandem index items` and `tandem remove` of selections."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.client import Client, Item
from tandem.client.testing import FakeServer
from tests.support.deploy.rendered import ROOT

IDS = ("2022/Rome/1", "2022/Rome/2", "2023/Oslo/1")


def run(fake: FakeServer, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--address", fake.address])


def test_items_are_listed_changed_and_removed_by_selections() -> None:
    """A dry run says how many and which first; values have their types."""
    with FakeServer() as fake, Client(fake.address) as client:
        items = [Item(each, text="a cup", attributes={"old": True}) for each in IDS]
        list(client.ingest(items, index_id="i"))

        dry = run(fake, "set", "price=19.5", "--index", "i", "--prefix", "2022/", "--dry-run")
        assert dry.stdout == f"i: 2 items would be changed\n  {', '.join(IDS[:2])}\n"
        values = ("price=19.5", "n=3", "new=true", "tag=a", "tag=b", 'sku="7"', "zip=01067", 'a=9"')
        changed = run(fake, "set", *values, "--unset", "old", "--index", "i", "--glob", "*/Rome/*")
        assert changed.stdout == "i: 2 items changed\n"
        listed = run(fake, "index", "items", "i", "--where", "price > 19", "--attributes")
        shown = "a=9\" n=3 new=True price=19.5 sku=7 tag=('a', 'b') zip=01067"
        assert listed.stdout == "".join(f"{each}  {shown}\n" for each in IDS[:2])

        missing = run(fake, "set", "n=4", "--index", "i", "--item", IDS[2], "--item", "gone")
        assert (missing.exit_code, missing.stdout) == (1, "i: 1 items changed, 1 not\n")
        assert "gone: ITEM_NOT_FOUND" in missing.stderr
        removed = run(fake, "remove", "--where", "n = 3", "--index", "i")
        assert removed.stdout == "i: 2 items removed\n"
        assert run(fake, "index", "items", "i").stdout == f"{IDS[2]}\n"


def test_the_page_of_filters_shows_what_the_commands_print() -> None:
    """Its Python too, before them."""
    page = (ROOT / "docs" / "filters.md").read_text().partition("## Change attributes")[2]
    [program, session] = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    with FakeServer() as fake, Client(fake.address) as client:
        for index_id, items in {
            "pets": [Item("my-cat", text="a cat", attributes={"weight": 4.2, "owner": "Ada"})],
            "shop": [Item(f"sku-{n}", text="a cup", attributes={"price": n}) for n in (60, 120)],
            "photos": [Item(f"2022/Rome/{n}", text="a street") for n in range(40)],
        }.items():
            list(client.ingest(items, index_id=index_id))
        exec(program.replace("127.0.0.1:7400", fake.address), {})
        for command, shown in re.findall(r"\$ tandem (.*)\n((?:[^$].*\n)+)", session):
            assert run(fake, *shlex.split(command)).stdout == shown, command


@pytest.mark.parametrize(
    "words", [("set", "n=4"), ("set", "--item", "a"), ("remove",), ("remove", "a", "--prefix", "b")]
)
def test_a_command_without_items_or_with_two_kinds_is_refused(words: tuple[str, ...]) -> None:
    with FakeServer() as fake:
        assert run(fake, *words).exit_code == 2
        missing = run(fake, "set", "prices.csv")
        assert "'prices.csv': there is no such file" in " ".join(missing.output.split())
