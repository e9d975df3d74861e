"""Compares a shard with a plain dictionary over any sequence of operations.

`make test` runs a dozen examples; TANDEM_MODEL_EXAMPLES=2000 is the full run.
"""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tandem.contract.content import (
    Encoding,
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
)
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    holds,
)
from tandem.errors import IndexNotFound, NoteChanged, RequestIdReused, WriterRefused
from tandem.local.item_store.backup import back_up, restore
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.retrieval import index_type
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.settings import ShardSettings
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.upkeep import index_loader, maintenance, rebuild
from tandem.local.shard.upkeep.snapshot_check import check_here
from tandem.platform.files.object_store import object_folder
from tandem.stages.item_write import Committed, Delete, Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.notes import Note, PutNote, SetWriter, WriterRule
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import RowHit

EXAMPLE_COUNT = int(os.environ.get("TANDEM_MODEL_EXAMPLES", "13"))
STEP_COUNT = 50

INDEX_ID, NEXT_ID = "scenes", "scenes@2"
FINGERPRINT = "model-a"
ITEM_IDS = [f"item-{number}" for number in range(12)]
# Components of +-0.5 have products and sums that float32 holds exactly, in whatever order.
EMBEDDINGS = [
    np.array([0.5 if bits >> place & 1 else -0.5 for place in range(4)], dtype=np.float32)
    for bits in range(16)
]
TYPES = ["Flat", "IVF2,Flat", "HNSW4", "SQ8"]
FILTERS: list[Filter] = [
    OneOf("style", ("plain",)),
    Not(OneOf("style", ("plain",))),
    InRange("count", at_least=2, below=5),
    StartsWith("style", "p"),
    AllOf((Exists("count"), Not(InRange("count", above=3)))),
    AnyOf((OneOf("tags", ("red",)), OneOf("count", (1,)))),
]

attributes = st.fixed_dictionaries(
    {},
    optional={
        "style": st.sampled_from(["plain", "painted", "flat"]),
        "count": st.integers(0, 5) | st.sampled_from([1.0, 2.5]),
        "tags": st.lists(st.sampled_from(["red", "green"])).map(tuple),
    },
)


# Of a write; None for one that may write now.
terms = st.sampled_from([None, None, None, 0, 1, 2, 3])


@st.composite
def stored_items(draw: st.DrawFn) -> list[ItemRecord]:
    """Draws up to four items of different ids, texts and images."""
    items = []
    for item_id in draw(st.lists(st.sampled_from(ITEM_IDS), min_size=1, max_size=4, unique=True)):
        embedding = EMBEDDINGS[draw(st.integers(0, len(EMBEDDINGS) - 1))]
        version = draw(st.integers(0, 999))
        if draw(st.booleans()):
            text_tokens = TextTokens(np.array([1, version], dtype=np.int32))
            content, encoding = TextContent(f"v{version}"), Encoding(embedding, text_tokens)
            items.append(ItemRecord(item_id, content, encoding, draw(attributes)))
        else:
            image_tokens = ImageTokens(np.full((1, 2), version, dtype=np.float16))
            image = ImageContent(str(version).encode())
            items.append(
                ItemRecord(item_id, image, Encoding(embedding, image_tokens), draw(attributes))
            )
    return items


@dataclass(frozen=True)
class Answered:
    """Holds a write under a request id, and its answer."""

    write: Upsert | Delete
    committed: Committed


class ShardModel(RuleBasedStateMachine):
    """Holds a shard over a real store, and the dictionary that it must equal."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._generation = 0
        self._items: dict[str, ItemRecord] = {}
        self._answered: dict[str, Answered] = {}
        self._rule = WriterRule()
        self._notes: dict[str, Note] = {}
        self._is_restoring = False
        self._shard = self._open()

    @initialize(is_restoring=st.integers(0, 7))
    def choose(self, is_restoring: int) -> None:
        """Allows restores in one example of eight: each starts processes and takes a second."""
        self._is_restoring = is_restoring == 0

    @rule(items=stored_items(), is_named=st.booleans(), term=terms)
    def upsert(self, items: list[ItemRecord], is_named: bool, term: int | None) -> None:
        """Also as a follower, or as a caller whose writes the rule refuses."""
        request_id = f"request-{len(self._answered)}" if is_named else ""
        term = self._allowed_term if term is None else term
        if self._write(Upsert(INDEX_ID, FINGERPRINT, items, request_id, term)):
            self._items |= {item.item_id: item for item in items}

    @precondition(lambda self: self._items)
    @rule(data=st.data(), count=st.integers(1, 3), is_named=st.booleans(), term=terms)
    def delete(self, data: st.DataObject, count: int, is_named: bool, term: int | None) -> None:
        item_ids = data.draw(st.lists(st.sampled_from(ITEM_IDS), min_size=1, max_size=count))
        request_id = f"request-{len(self._answered)}" if is_named else ""
        term = self._allowed_term if term is None else term
        if committed := self._write(Delete(INDEX_ID, item_ids, request_id, term)):
            gone = {item_id for item_id in item_ids if self._items.pop(item_id, None) is not None}
            assert committed.deleted_count == len(gone)

    @rule(term=st.integers(0, 3), is_open=st.booleans(), progress=st.sampled_from(["", "{}"]))
    def set_writer(self, term: int, is_open: bool, progress: str) -> None:
        """Says who may write from now on; a follower of an earlier term may not say it."""
        before = self._sequence()
        writing = self._shard.write(SetWriter(INDEX_ID, term, is_open, progress))
        if term < self._rule.term:
            with pytest.raises(WriterRefused):
                writing.result(60)
        else:
            assert writing.result(60).sequence == before
            self._rule = WriterRule(term, is_open, progress)
            self._note(f"writer/{INDEX_ID}", json.dumps(asdict(self._rule)))

    @rule(
        key=st.sampled_from(["alias/a", "alias/b"]),
        value=st.sampled_from(["", "{}", "[]"]),
        lag=st.sampled_from([0, 0, 1, -1]),
    )
    def put_note(self, key: str, value: str, lag: int) -> None:
        """Replaces a note, or one that another process replaced meanwhile."""
        revision = self._notes[key].revision if key in self._notes else 0
        writing = self._shard.write(PutNote(key, value, revision - lag))
        if lag:
            with pytest.raises(NoteChanged):
                writing.result(60)
        else:
            writing.result(60)
            self._note(key, value)

    @precondition(lambda self: INDEX_ID in self._shard.indexes())
    @rule(is_looked_after=st.booleans())
    def drop(self, is_looked_after: bool) -> None:
        dropped = self._shard.drop(INDEX_ID, deadline_time=float("inf"))
        assert (dropped.count, dropped.is_complete) == (len(self._items), True)
        assert INDEX_ID not in self._shard.indexes()
        self._items = {}
        if is_looked_after:
            self._shard.maintenance.step()

    @precondition(lambda self: self._answered)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Repeats a write, which gets the same answer and changes nothing, whoever may write.

        Also under another generation, which serves meanwhile.
        """
        answered = self._answered[data.draw(st.sampled_from(sorted(self._answered)))]
        again = self._shard.write(
            replace(answered.write, index_id=data.draw(st.sampled_from([INDEX_ID, NEXT_ID])))
        ).result(60)
        assert again.sequence == answered.committed.sequence
        assert again.deleted_count == answered.committed.deleted_count
        assert again.is_repeat

    @precondition(lambda self: self._answered)
    @rule(data=st.data())
    def reuse(self, data: st.DataObject) -> None:
        """Reuses a request id for another write, which is refused and changes nothing."""
        request_id = data.draw(st.sampled_from(sorted(self._answered)))
        with pytest.raises(RequestIdReused):
            self._shard.write(Delete(INDEX_ID, ["another"], request_id)).result(60)

    @precondition(lambda self: INDEX_ID in self._shard.indexes())
    @rule()
    def snapshot(self) -> None:
        self._shard.maintenance.snapshots.write(INDEX_ID, self._shard.index(INDEX_ID))

    @precondition(lambda self: INDEX_ID in self._shard.indexes())
    @rule(modality=st.sampled_from(Modality), index_type=st.sampled_from(TYPES))
    def rebuild(self, modality: Modality, index_type: str) -> None:
        """Rebuilds another type or the same one, with or without compaction."""
        tuning = IndexTuning(index_type, {"nprobe": 2} if "IVF" in index_type else {})
        self._shard.tunings.put(INDEX_ID, modality, tuning)
        self._shard.maintenance.ask_rebuild(INDEX_ID, modality, "operator")
        while self._shard.maintenance.step():
            pass

    @rule()
    def crash(self) -> None:
        """Loses everything in memory, but nothing acknowledged."""
        self._shard.close()
        self._shard = self._open()

    @precondition(lambda self: self._is_restoring and INDEX_ID in self._shard.indexes())
    @rule()
    def restore(self) -> None:
        """Continues with a restored backup."""
        self._is_restoring = False
        self._shard.close()
        place = object_folder(f"file://{self._folder.name}/backups", is_new=True)
        backup, _ = back_up(place, self._path)
        self._generation += 1
        restore(backup, self._path)
        self._shard = self._open()

    @invariant()
    def has_the_notes(self) -> None:
        assert list(self._shard.notes("")) == [self._notes[key] for key in sorted(self._notes)]
        assert NEXT_ID not in self._shard.indexes()

    @invariant()
    def holds_what_the_dictionary_holds(self) -> None:
        if not self._items and INDEX_ID not in self._shard.indexes():
            with pytest.raises(IndexNotFound):
                self._shard.read_within(INDEX_ID, ITEM_IDS)
            return
        read, _ = self._shard.read_within(INDEX_ID, ITEM_IDS)
        assert {item.item_id: (item.content, item.attributes) for item in read} == {
            item_id: (item.content, item.attributes) for item_id, item in self._items.items()
        }
        for modality in Modality:
            for where in (None, FILTERS[len(self._items) % len(FILTERS)]):
                query = EMBEDDINGS[len(self._items) % len(EMBEDDINGS)]
                assert self._found(query, modality, where) == self._expected(query, modality, where)

    def teardown(self) -> None:
        self._shard.close()
        self._folder.cleanup()

    @property
    def _path(self) -> Path:
        return Path(self._folder.name) / f"shard-{self._generation}"

    def _open(self) -> StoredShard:
        shard = StoredShard(
            ItemStore.open(self._path, 0, 1, map_bytes=16 << 20),
            self._path,
            ShardSettings(commit_wait_seconds=0.0, snapshot_change_count=10**9),
        )
        shard.load()
        return shard

    @property
    def _allowed_term(self) -> int:
        return 0 if self._rule.is_open else max(self._rule.term, 1)

    def _sequence(self) -> int:
        return self._shard.changes(0, 1).sequence

    def _note(self, key: str, value: str) -> None:
        revision = self._notes[key].revision if key in self._notes else 0
        self._notes[key] = Note(key, value, revision + 1)

    def _write(self, write: Upsert | Delete) -> Committed | None:
        """Writes it; returns None where the rule refuses it, which then changes nothing."""
        writing = self._shard.write(write)
        is_of_caller = write.term == 0
        if is_of_caller != self._rule.is_open or (write.term and write.term < self._rule.term):
            with pytest.raises(WriterRefused):
                writing.result(60)
            return None
        committed = writing.result(60)
        assert not committed.is_repeat
        if write.request_id:
            self._answered[write.request_id] = Answered(write, committed)
        return committed

    def _found(self, query: np.ndarray, modality: Modality, where: Filter | None) -> list[RowHit]:
        answer = self._shard.search(
            ShardQuery(
                INDEX_ID,
                FINGERPRINT,
                modality,
                modality,
                retrieve_k=len(ITEM_IDS),
                filter=None if where is None else checked_filter(filter_to_proto(where)),
                embeddings=[query],
                minimum_sequence=self._shard.applied_sequence,
            )
        )
        assert answer.item_count == len(self._of(modality))
        return list(answer.found[0].hits)

    def _expected(
        self, query: np.ndarray, modality: Modality, where: Filter | None
    ) -> list[RowHit]:
        hits = [
            RowHit(item.item_id, float(item.encoding.embedding @ query))
            for item in self._of(modality)
            if where is None or holds(where, item.attributes)
        ]
        return sorted(hits, key=lambda hit: (-hit.similarity, hit.item_id))

    def _of(self, modality: Modality) -> list[ItemRecord]:
        return [item for item in self._items.values() if item.content.modality is modality]


@pytest.mark.timeout(0 if EXAMPLE_COUNT > 100 else 240)
def test_a_shard_equals_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations include drops, repeats, crashes, snapshots, restores and rebuilds."""
    # Its thread does not run: the rules take its steps.
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    # The same check without a process each time, which takes a second.
    monkeypatch.setattr(
        index_loader, "check_snapshots", lambda folders: [check_here(each) for each in folders]
    )
    monkeypatch.setattr(index_type, "MIN_APPROXIMATE_COUNT", 4)
    monkeypatch.setattr(rebuild, "_FOLD_COUNT", 2)
    run_state_machine_as_test(
        ShardModel,
        settings=settings(max_examples=EXAMPLE_COUNT, stateful_step_count=STEP_COUNT),
    )


def test_a_shard_that_forgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive control: deletes that never reach the index are found."""
    monkeypatch.setattr(maintenance.Maintenance, "start", lambda _: None)
    monkeypatch.setattr(
        "tandem.local.shard.retrieval.searchable_index.SearchableIndex.delete", lambda *_: None
    )

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            ShardModel,
            settings=settings(
                max_examples=50, stateful_step_count=STEP_COUNT, phases=[Phase.generate]
            ),
        )
