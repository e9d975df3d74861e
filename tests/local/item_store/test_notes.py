"""Notes of a shard's store, and who may write an index."""

from pathlib import Path

import pytest

from tandem.errors import NoteChanged, WriterRefused
from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Committed, Delete, ItemWrite, Upsert
from tandem.stages.notes import PutNote, SetWriter, WriterRule
from tests.support.item_store.made_items import text_item


def put(path: Path, *writes: ItemWrite) -> list[object]:
    """Applies each write in a store of its own opening, as after a restart."""
    outcomes: list[object] = []
    for write in writes:
        store = ItemStore.open(path, 0, 1, allow_any_file_system=True)
        [outcome] = store.apply([write])
        outcomes.append(outcome if isinstance(outcome, Committed) else type(outcome))
        store.close()
    return outcomes


def test_a_note_is_replaced_only_by_who_read_it(tmp_path: Path) -> None:
    first, again = PutNote("alias/a", "1", 0), PutNote("alias/a", "2", 1)
    made, refused, replaced = put(tmp_path, first, first, again)
    assert isinstance(made, Committed)
    assert refused is NoteChanged
    assert isinstance(replaced, Committed)
    store = ItemStore.open(tmp_path, 0, 1, allow_any_file_system=True)
    [note] = store.notes("alias/")
    assert (note.value, note.revision) == ("2", 2)
    assert store.notes("alias/a/") == []
    store.close()


@pytest.mark.parametrize(
    ("term", "is_open", "is_taken"),
    [
        (0, True, True),
        (0, False, False),
        (2, False, True),
        (3, False, True),
        (1, False, False),
        (2, True, False),
    ],
)
def test_a_closed_index_takes_its_follower_s_writes_alone(
    tmp_path: Path, term: int, *, is_open: bool, is_taken: bool
) -> None:
    """Term 2 follows; the rule holds after a restart, and for deletes too."""
    upsert = Upsert("photos@2", "model", [text_item("a")], term=term)
    delete = Delete("photos@2", ["a"], term=term)
    made, *outcomes = put(tmp_path, SetWriter("photos@2", 2, is_open), upsert, delete)
    assert isinstance(made, Committed)
    assert [each is not WriterRefused for each in outcomes] == [is_taken] * 2


def test_a_follower_of_an_earlier_term_sets_no_rule(tmp_path: Path) -> None:
    rules = SetWriter("a", 2, is_open=False, progress="x"), SetWriter("a", 1, is_open=True)
    assert put(tmp_path, *rules)[1] is WriterRefused
    store = ItemStore.open(tmp_path, 0, 1, allow_any_file_system=True)
    [note] = store.notes("writer/")
    assert WriterRule.of(note) == WriterRule(2, is_open=False, progress="x")
    store.close()
