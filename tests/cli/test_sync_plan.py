"""The plan of a sync against dictionaries: whatever source, index and record are, all is equal."""

from collections.abc import Iterator
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.cli.ingest.job_record import JobRecord, Row, Status
from tandem.cli.ingest.sync_plan import Plan, planned

Items = dict[str, tuple[str, str]]
"""Content and attributes by id."""

IDS = st.sampled_from("abcdef")
ITEMS = st.dictionaries(IDS, st.tuples(st.sampled_from("PQRST"), st.sampled_from("xy")))


def row_of(item_id: str, item: tuple[str, str], status: Status = Status.SENT) -> Row:
    return Row(item_id, item_id, "", 1, sha256(item[0].encode()).digest(), item[1], status)


def applied(plan: Plan, source: Items, index: Items, job: JobRecord) -> Iterator[str]:
    """Does what the command does, step by step; yields after each what a kill may leave."""
    for group in plan.copies:
        job.write(row for row, _ in group)
        yield "noted"
        taken = {row.item_id: index[old.item_id][0] for row, old in group}
        for row, _ in group:
            index[row.item_id] = taken[row.item_id], row.attributes
            yield "copied"
        job.answer((Status.STORED, "", row.item_id) for row, _ in group)
    for row, old in plan.changed:
        index[row.item_id] = index[old.item_id][0], row.attributes
        yield "changed"
        job.write([row_of(row.item_id, source[row.item_id], Status.STORED)])
    for row in plan.encoded:
        job.write([row])
        yield "noted"
        index[row.item_id] = source[row.item_id]
        yield "encoded"
        job.answer([(Status.STORED, "", row.item_id)])
    for item_id in plan.removed:
        index.pop(item_id, None)
        yield "removed"
        job.forget([item_id])


def plan_of(source: Items, job: JobRecord) -> Plan:
    gone = {row.item_id for row in job.every()} - source.keys()
    return planned(job, [row_of(*entry) for entry in source.items()], gone)


@settings(max_examples=300)
@given(ITEMS, ITEMS, ITEMS, st.lists(st.integers(0, 12), max_size=3))
def test_any_index_becomes_equal_to_any_source(
    source: Items, known: Items, unsure: Items, kills: list[int]
) -> None:
    """Killed anywhere; what the record says was sent may be there or not, with any content."""
    others = {"other": ("P", "x")}
    index = {**unsure, **known, **others}
    with JobRecord(None) as job:
        job.write(row_of(each, ("?", "?")) for each in unsure)
        job.write(row_of(*entry, Status.STORED) for entry in known.items())
        plan = plan_of(source, job)
        stored_contents = {content for content, _ in known.values()}
        for kill in kills:
            for number, _ in enumerate(applied(plan_of(source, job), source, index, job)):
                if number == kill:
                    break
        for _ in applied(plan_of(source, job), source, index, job):
            pass

        assert index == {**source, **others}
        left = plan_of(source, job)
        changed = [new for new, old in left.changed if new.attributes != old.attributes]
        assert [*left.copies, *changed, *left.encoded, *left.removed] == []
    # Only contents that no item had, and one of each circle, are encoded.
    copyable = [row for row in plan.encoded if source[row.item_id][0] in stored_contents]
    assert len(copyable) <= len(source) // 2
    moved = [row for group in plan.copies for row, _ in group]
    assert not {row.item_id for row in moved} & {row.item_id for row in plan.encoded}


def test_chains_are_copied_and_of_a_swap_one_is_encoded() -> None:
    known = {each: (each.upper(), "x") for each in "abcd"}
    # a→b→c, d stays away; then b and c change places.
    chain = {"b": ("A", "x"), "c": ("B", "x"), "e": ("C", "x")}
    swap = {"a": ("A", "x"), "b": ("C", "x"), "c": ("B", "x"), "d": ("D", "x")}
    with JobRecord(None) as job:
        job.write(row_of(*entry, Status.STORED) for entry in known.items())
        plans = plan_of(chain, job), plan_of(swap, job)

    moves = [[(old.item_id, row.item_id) for row, old in group] for group in plans[0].copies]
    assert moves == [[("c", "e")], [("b", "c")], [("a", "b")]]
    assert (plans[0].encoded, plans[0].removed, plans[0].lost) == ([], ["a", "d"], ["d"])
    assert [row.item_id for row in plans[1].encoded] == ["b"]
    assert [[row.item_id for row, _ in group] for group in plans[1].copies] == [["c"]]
