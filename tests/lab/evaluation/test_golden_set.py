"""Golden sets: the pool says nothing of systems, and no judgement is lost."""

import json
import resource
from contextlib import closing
from pathlib import Path

import pytest

from tandem.contract.content import Modality
from tandem.corpus.judged_queries import JudgedQuery, drawn_from, read_judged_queries
from tandem.lab.evaluation.golden_set import POOL_NAME, Judgements, write_golden_set

QUERIES = [JudgedQuery(f"q{n}", f"text {n}", Modality.IMAGE, {}) for n in range(8)]
FIRST = {each.query_id: [f"a {n}" for n in range(6)] for each in QUERIES}
SECOND = {each.query_id: [f"a {n}" for n in range(5, 1, -1)] + ["b"] for each in QUERIES}


def written(folder: Path, seed: int = 1, **runs: dict[str, list[str]]) -> Path:
    """Writes a golden set of two systems, and returns its folder."""
    both = runs or {"be": FIRST, "ce": SECOND}
    write_golden_set(folder, QUERIES, both, 4, seed, {"index_id": "x"})
    return folder


def test_the_pool_says_nothing_of_systems_and_ranks(tmp_path: Path) -> None:
    """Each item once, and the same file whichever system found what."""
    one = (written(tmp_path / "1") / POOL_NAME).read_text()
    other = (written(tmp_path / "2", be=SECOND, ce=FIRST) / POOL_NAME).read_text()
    shuffled = (written(tmp_path / "3", seed=2) / POOL_NAME).read_text()
    pool = json.loads(one)

    assert one == other != shuffled
    assert {frozenset(ids) for ids in pool.values()} == {frozenset(f"a {n}" for n in range(6))}
    assert all(len(ids) == 6 for ids in pool.values())
    assert len({tuple(ids) for ids in pool.values()}) > 4
    assert list(pool) != sorted(pool)


def test_only_drawn_queries_are_pooled_and_the_manifest_says_from_how_many(tmp_path: Path) -> None:
    """Those with one first item are never drawn; every query stays, and so do its lists."""
    second = SECOND | {name: FIRST[name] for name in ("q0", "q1", "q2")}
    runs = {"be": FIRST, "ce": second}
    counts = write_golden_set(tmp_path / "new", QUERIES, runs, 1, 1, {"index_id": "x"}, 3)

    pool = json.loads((tmp_path / "new" / POOL_NAME).read_text())
    assert counts == {"query_count": 8, "differing_count": 5, "drawn_count": 3, "pair_count": 6}
    assert len(pool) == 3
    assert pool.keys() <= {"q3", "q4", "q5", "q6", "q7"}
    assert len(read_judged_queries(tmp_path / "new")) == 8
    assert drawn_from(tmp_path / "new") == "queries at which be and ce differ"
    assert not drawn_from(written(tmp_path / "whole"))
    assert not drawn_from(tmp_path / "whole" / "queries.jsonl")


def test_judgements_are_kept_and_taken_back(tmp_path: Path) -> None:
    """What was judged before is there for the next process, and stays when it undoes its own."""
    folder = written(tmp_path / "golden")
    with closing(Judgements(folder)) as before:
        before.add("q1", "a 1", 1)
        with pytest.raises(ValueError, match="another process judges"):
            Judgements(folder)
    with (folder / "qrels.txt").open("a") as qrels:
        qrels.write("q1 0 a%20")  # A power failure cut this line.

    with closing(Judgements(folder)) as after:
        after.add("q2", "a 2", 0)
        after.add("q2", "a 3", 1)
        assert after.undo() == ("q2", "a 3")

    grades = {each.query_id: each.grades for each in read_judged_queries(folder)}
    assert {key: value for key, value in grades.items() if value} == {
        "q1": {"a 1": 1},
        "q2": {"a 2": 0},
    }
    with closing(Judgements(folder)) as after, pytest.raises(IndexError):
        after.undo()


def test_a_full_disk_loses_no_judgement(tmp_path: Path) -> None:
    """The judgement that does not fit is refused whole, and the next one that fits is kept."""
    folder = written(tmp_path / "golden")
    judgements = Judgements(folder)
    judgements.add("q1", "a 1", 1)
    size = (folder / "qrels.txt").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 3, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large|No space"):
            judgements.add("q1", "a 2", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert (folder / "qrels.txt").stat().st_size == size
    judgements.add("q1", "a 2", 0)
    judgements.close()
    [judged] = [each.grades for each in read_judged_queries(folder) if each.grades]
    assert judged == {"a 1": 1, "a 2": 0}
