"""tandem.cli.search.search_table on a screen of 80 columns."""

import io

import pytest

from tandem.cli.search import search_table
from tandem.cli.terminal.console import Terminal
from tandem.client import Client, Item
from tandem.client.testing import FakeServer

ITEM_ID = "scenes-test-0000/01-2-of-a-long-name-that-is-copied-by-people-and-programs"


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_ids_are_whole_on_a_narrow_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes are on a line below, and heads stand over their columns."""
    monkeypatch.setenv("COLUMNS", "80")
    screen = Terminal()
    screen.file = Screen()
    monkeypatch.setattr(search_table, "out", screen)
    with FakeServer() as server, Client(server.address) as client:
        attributes = {"style": "noto", "caption": "two birds left of one alarm clock"}
        list(client.ingest([Item(ITEM_ID, image=b"a cup", attributes=attributes)], index_id="p"))
        found = client.search("cup", index_id="p", attributes_included=True)
    search_table.print_result(found, attributes_shown=True)

    head, row, detail, *_ = screen.file.getvalue().splitlines()
    assert row.endswith(f" {ITEM_ID}")
    assert head.index("item") == row.index(ITEM_ID)
    assert sorted(detail.strip().split(", ")) == [
        "caption=two birds left of one alarm clock",
        "style=noto",
    ]
