"""Tests the judge of the fault tests: it accepts every state that can be right and no other."""

from collections.abc import Mapping

from tests.support.faults.history import Call, FindingKind, History, Version


def answered(history: History, changes: Mapping[str, Version], sequence: int) -> Call:
    """Records a call that was answered at once and changed every item in it."""
    call = history.begin(changes)
    history.answered(call, sequence, len(changes))
    return call


def unknown(history: History, changes: Mapping[str, Version]) -> Call:
    """Records a call without an answer."""
    call = history.begin(changes)
    history.unknown(call)
    return call


def kinds(
    history: History, found: Mapping[str, Version], sequence: int | None = None
) -> list[FindingKind]:
    """Returns the kinds of findings."""
    return [fault.kind for fault in history.findings(found, sequence)]


def test_acknowledged_writes_must_be_found() -> None:
    """An acknowledged item that is gone, or back at an older version, is missing."""
    history = History()
    answered(history, {"a": 1, "b": 2}, 2)
    answered(history, {"a": 3}, 3)

    assert kinds(history, {"a": 3, "b": 2}, 3) == []
    assert kinds(history, {"b": 2}) == [FindingKind.MISSING]
    assert kinds(history, {"a": 1, "b": 2}) == [FindingKind.MISSING]


def test_unwritten_items_must_not_be_found() -> None:
    """Deleted, refused and never written items are phantoms."""
    history = History()
    answered(history, {"a": 1}, 1)
    answered(history, {"a": None}, 2)
    history.refused(history.begin({"b": 2}))

    assert kinds(history, {}) == []
    assert kinds(history, {"a": 1}) == [FindingKind.PHANTOM]
    assert kinds(history, {"b": 2}) == [FindingKind.PHANTOM]
    assert kinds(history, {"c": 3}) == [FindingKind.PHANTOM]


def test_an_uncertain_call_took_effect_wholly_or_not_at_all() -> None:
    """Half of the batch is malformed."""
    history = History()
    answered(history, {"a": 1, "b": 2}, 2)
    unknown(history, {"a": 3, "b": None, "c": 4})

    assert kinds(history, {"a": 1, "b": 2}) == []
    assert kinds(history, {"a": 3, "c": 4}) == []
    assert kinds(history, {"a": 3, "b": 2, "c": 4}) == [FindingKind.MALFORMED]
    assert kinds(history, {"a": 1, "b": 2, "c": 4}) == [FindingKind.MALFORMED] * 2


def test_concurrent_calls_may_take_effect_in_either_order() -> None:
    """An unknown call may have been executed before one that was answered meanwhile."""
    history = History()
    lost = history.begin({"a": 1, "b": 2})
    meanwhile = history.begin({"a": 3})
    history.answered(meanwhile, 3, 1)
    history.unknown(lost)

    assert kinds(history, {"a": 3}) == []  # the lost call was not carried out
    assert kinds(history, {"a": 3, "b": 2}) == []  # before the other
    assert kinds(history, {"a": 1, "b": 2}) == []  # after the other
    assert kinds(history, {"a": 1}) == [FindingKind.MALFORMED]


def test_answered_calls_are_in_the_order_of_their_sequences() -> None:
    """Of concurrent calls the one with the higher sequence number is the last."""
    history = History()
    first, second = history.begin({"a": 1}), history.begin({"a": 2})
    history.answered(second, 1, 1)
    history.answered(first, 2, 1)

    assert kinds(history, {"a": 1}) == []
    assert kinds(history, {"a": 2}) == [FindingKind.MISSING]


def test_a_sequence_never_decreases() -> None:
    """A call that began after another was answered has a higher sequence number."""
    history = History()
    answered(history, {"a": 1}, 5)
    answered(history, {"b": 2}, 4)

    assert kinds(history, {"a": 1, "b": 2}) == [FindingKind.MALFORMED]


def test_a_repeated_write_is_visible_in_the_change_log() -> None:
    """More changes than requested are duplicates; fewer than answered are missing."""
    history = History()
    answered(history, {"a": 1, "b": 2}, 2)
    unknown(history, {"c": 3})

    assert kinds(history, {"a": 1, "b": 2, "c": 3}, 3) == []
    assert kinds(history, {"a": 1, "b": 2}, 2) == []
    assert kinds(history, {"a": 1, "b": 2, "c": 3}, 4) == [FindingKind.DUPLICATE]
    assert kinds(history, {"a": 1, "b": 2}, 1) == [FindingKind.MISSING]


def test_a_found_item_stays_known() -> None:
    """Once settled, a call of unknown outcome was executed or never will be."""
    history = History()
    unknown(history, {"a": 1})
    unknown(history, {"b": 2})
    history.settle({"a": 1}, 1)

    assert history.item_ids == ["a", "b"]
    assert kinds(history, {"a": 1}, 1) == []
    assert kinds(history, {}) == [FindingKind.MISSING]
    assert kinds(history, {"a": 1, "b": 2}) == [FindingKind.PHANTOM]


def test_a_search_may_find_items_of_uncertain_writes() -> None:
    """A deleted item must not be found after the answer, until it is written again."""
    history = History()
    answered(history, {"a": 1}, 1)
    deletion = history.begin({"a": None})
    assert history.may_be_live("a", deletion.start_time)

    history.answered(deletion, 2, 1)
    assert deletion.end_time is not None
    later_time = deletion.end_time + 1
    assert history.may_be_live("a", deletion.start_time)
    assert not history.may_be_live("a", later_time)
    assert not history.may_be_live("b", later_time)

    history.begin({"a": 2})
    assert history.may_be_live("a", later_time)
