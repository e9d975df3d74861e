"""What an engine keeps and answers, and what it refuses by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tandem import Engine
from tandem.client import Modality, Search, SearchResult, StoredItem
from tandem.contract.deadline import Deadline
from tandem.corpus.scenes.records import scene_records
from tandem.errors import IndexNotFound, ItemIdInvalid, ModelMismatch
from tandem.local.item_store.refused import StoreDamaged
from tandem.stack.data_folder import DataFolder
from tandem.stack.start_refused import StartRefused
from tandem.stages.aliases import AliasRecord, Generation
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint
from tests.support.pictures.pictures import BLUE, GREEN, RED, encoded, plain

ITEMS: list[tuple[str, str | bytes]] = [
    ("red", encoded(plain(RED), "PNG")),
    ("green", encoded(plain(GREEN), "PNG")),
    ("blue", encoded(plain(BLUE), "PNG")),
    ("apple", "one red apple"),
    ("leaf", "one green leaf"),
]


def stored(engine: Engine, items: list[tuple[str, str | bytes]] = ITEMS) -> None:
    """Stores the items in the index colours."""
    assert [each.error for each in engine.ingest(items, index_id="colours")] == [None] * len(items)


def shown(result: SearchResult) -> list[tuple[str, float, float | None]]:
    """Returns ids and scores, best first."""
    return [(item.item_id, item.score, item.match_logit) for item in result.items]


def test_ingested_items_are_found_also_after_reopening(
    tmp_path: Path, tiny_repository: Path
) -> None:
    """Texts find pictures and pictures texts, both reranked."""
    with Engine(tmp_path / "new", model=tiny_repository) as engine:
        stored(engine)
        first = engine.search("one red apple", index_id="colours")
        texts = engine.search(ITEMS[0][1], index_id="colours")
    with Engine(tmp_path / "new", model=tiny_repository) as again:
        second = again.search("one red apple", index_id="colours")

    assert {item.item_id for item in first.items} == {"red", "green", "blue"}
    assert {item.item_id for item in texts.items} == {"apple", "leaf"}
    assert first.rerank.stop == "COMPLETE"
    assert not first.degradations
    assert shown(second) == pytest.approx(shown(first))


def test_a_folder_keeps_the_checkpoint_that_it_was_given(
    tmp_path: Path, tiny_checkpoint: Path, tiny_repository: Path
) -> None:
    """It is exported once; without it the folder's own export serves, and no other model does."""
    folder = tmp_path / "engine"
    with Engine(folder, model=tiny_checkpoint) as engine:
        stored(engine)
        given = engine.describe_model().fingerprint
    with Engine(folder) as again:
        assert again.describe_model().fingerprint == given
        assert again.search(StoredItem("red"), index_id="colours", target_modality=Modality.TEXT)

    save_tiny_checkpoint(tmp_path / "other", seed=5)
    with Engine(folder, model=tmp_path / "other") as changed, pytest.raises(ModelMismatch):
        changed.search("one red apple", index_id="colours")


def test_a_second_writer_is_refused_by_name(engine: Engine, tmp_path: Path) -> None:
    """In this process and in another; `tandem up` names the engine that has the folder."""
    folder = tmp_path / "engine"
    with pytest.raises(StartRefused, match=r"another Engine \(process \d+\) serves .*engine"):
        Engine(folder)
    with pytest.raises(StartRefused, match=r"another Engine \(process \d+\) serves"):
        DataFolder(folder).take()
    ran = subprocess.run(
        [sys.executable, "-c", f"from tandem import Engine; Engine({str(folder)!r})"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "StartRefused: another Engine (process" in ran.stderr.splitlines()[-1]

    engine.close()
    with DataFolder(folder):
        pass


def test_a_closed_engine_says_so(engine: Engine) -> None:
    """And closing it twice is not an error."""
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="this Engine is closed: open its folder again"):
        engine.search("one red apple", index_id="colours")


def test_errors_are_those_of_the_services(engine: Engine) -> None:
    """An unknown index, an item of a batch, a search of a batch."""
    with pytest.raises(IndexNotFound):
        engine.search("one red apple", index_id="colours")
    outcomes = list(engine.ingest([*ITEMS[:1], ("", "no id"), *ITEMS[1:2]], index_id="colours"))
    assert [type(each.error) for each in outcomes] == [type(None), ItemIdInvalid, type(None)]
    answer, error = engine.search_batch(
        [Search("one red apple", index_id="colours"), Search("one red apple", index_id="none")]
    )
    assert isinstance(answer, SearchResult)
    assert isinstance(error, IndexNotFound)


def test_an_error_of_the_items_is_raised_after_storing_the_earlier_ones(engine: Engine) -> None:
    """An iterator of the caller's that breaks after a whole batch."""

    def breaking() -> Iterator[tuple[str, str | bytes]]:
        yield from ITEMS
        raise RuntimeError("the disk of the pictures is gone")

    outcomes = engine.ingest(breaking(), index_id="colours", batch_item_count=len(ITEMS))
    with pytest.raises(RuntimeError, match="the disk of the pictures is gone"):
        list(outcomes)
    # A batch in flight when its stream breaks may be stored or not, as with the services.
    stored(engine)
    assert engine.remove([each for each, _ in ITEMS], index_id="colours").removed_count == 5


def test_a_caller_may_stop_reading(engine: Engine) -> None:
    """Of an ingest without end, and of a search after its first answer."""

    def endless() -> Iterator[tuple[str, str | bytes]]:
        while True:
            yield from ITEMS

    outcomes = engine.ingest(endless(), index_id="colours", batch_item_count=5)
    assert next(outcomes).error is None
    outcomes.close()  # type: ignore[attr-defined]
    first = next(engine.search_stream("one red apple", index_id="colours"))
    assert not first.is_final
    assert engine.search("one red apple", index_id="colours").rerank.stop == "COMPLETE"


def test_many_threads_search_concurrently(engine: Engine) -> None:
    """Each gets the answer to its own query."""
    stored(engine)
    queries = [f"one red apple {number}" for number in range(8)]
    alone = [shown(engine.search(query, index_id="colours")) for query in queries]
    with ThreadPoolExecutor(4) as threads:
        together = list(
            threads.map(lambda query: shown(engine.search(query, index_id="colours")), queries)
        )
    for one, other in zip(alone, together, strict=True):
        assert [each[0] for each in one] == [each[0] for each in other]
        assert [each[1] for each in one] == pytest.approx([each[1] for each in other], abs=1e-6)


def test_a_damaged_store_is_refused_by_name(tmp_path: Path, tiny_repository: Path) -> None:
    """Before this process reads it, which damage may kill; and the folder is given back."""
    with Engine(tmp_path, model=tiny_repository) as engine:
        stored(engine)
    data = tmp_path / "shard-0" / "data.mdb"
    whole = data.read_bytes()
    data.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreDamaged, match="shard-0 is damaged"):
        Engine(tmp_path, model=tiny_repository)

    data.write_bytes(whole)
    with Engine(tmp_path, model=tiny_repository) as mended:
        assert len(mended.search("one red apple", index_id="colours").items) == 3


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("tandem.engine", "tandem.Engine needs tandem-search: pip install tandem-search"),
        ("faiss", "tandem.Engine needs faiss: pip install tandem-search"),
    ],
)
def test_a_missing_package_is_named_in_one_line(missing: str, told: str) -> None:
    """And `import tandem` alone imports nothing of it."""
    program = (
        f"import sys, tandem\nsys.modules[{missing!r}] = None\n"
        "assert not {'numpy', 'grpc', 'torch', 'tandem.engine.engine'} & set(sys.modules)\n"
        "from tandem import Engine\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.stderr.splitlines()[-1] == f"tandem.installation.PackageMissing: {told}"


def test_recall_is_measured_as_the_services_are(engine: Engine) -> None:
    """By hand: each query's answer among the items of a search with the same depths."""
    records = list(scene_records("test", 7, 8))
    report = engine.evaluate(records, language="en", rerank_k=[0, 20], concurrency=1)

    pictures = [(each.record_id, each.image.read()) for each in records]
    assert all(each.error is None for each in engine.ingest(pictures, index_id="by-hand"))
    captions = [next(c.text for c in each.captions if c.language == "en") for each in records]
    for order_by, disabled in (("BE", True), ("BE + CE 20", False)):
        found = [
            engine.search(
                text, index_id="by-hand", retrieve_k=20, rerank_k=20, rerank_disabled=disabled
            ).items[0]
            for text in captions
        ]
        hits = sum(
            each.item_id == record.record_id for each, record in zip(found, records, strict=True)
        )
        ranking = report.ranking("text→image", order_by)
        assert sum(rank == 1 for rank in ranking.ranks) == hits
    with pytest.raises(IndexNotFound):
        engine.search(captions[0], index_id="evaluation")
    with pytest.raises(ValueError, match="there are no records to evaluate on"):
        engine.evaluate([])


def test_an_engine_finds_what_its_alias_serves(tmp_path: Path, tiny_repository: Path) -> None:
    """In a folder where a second generation of its model was promoted."""
    with Engine(tmp_path / "new", model=tiny_repository) as engine:
        stored(engine)
        model = engine.describe_model().fingerprint
        generations = (Generation("colours", model), Generation("colours@2", model))
        record = AliasRecord("colours", "colours@2", generations, next_number=3)
        own = engine._open_folder
        own.thread.run(own.orchestrator.router.book.put(record, Deadline.after(10.0)))
        stored(engine, ITEMS[:1])
        found = engine.search("one red apple", index_id="colours")
        assert [item.item_id for item in found.items] == ["red"]
    with Engine(tmp_path / "new", model=tiny_repository) as again:
        assert [each.index_id for each in again.list_indexes().indexes] == ["colours"]
        assert shown(again.search("one red apple", index_id="colours")) == pytest.approx(
            shown(found)
        )
