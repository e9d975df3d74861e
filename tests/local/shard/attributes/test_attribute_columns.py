"""Compares filters over columns with reading each item's attributes."""

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tandem.contract.filtering.attributes import Attributes, AttributeValue
from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    Value,
    holds,
)
from tandem.local.shard.attributes.attribute_columns import AttributeColumns
from tests.support.contract import made_filters

# Rows far from one another, so that columns are sparse, dense, and change from one to the other.
ROWS = [0, 1, 2, 3, 5, 8, 40, 100]

Case: TypeAlias = tuple[list[tuple[int, Attributes | None]], list[Filter]]


def cases_of(
    values: st.SearchStrategy[Value], rows: Sequence[int] = ROWS
) -> st.SearchStrategy[Case]:
    """Makes changes (None drops a row), one filter and lone conditions, all from these values."""
    attributes = made_filters.attributes_of(values)
    changes = st.lists(
        st.tuples(st.sampled_from(rows), attributes | st.none()), min_size=1, max_size=20
    )
    conditions = st.lists(made_filters.conditions_of(values), min_size=4, max_size=4)
    filters = st.builds(
        lambda *made: [made[0], *made[1]], made_filters.filters_of(values), conditions
    )
    return st.tuples(changes, filters)


# Few values at a time, or an item's would seldom be a filter's.
NUMBERS = st.sampled_from([1, True, 1.0, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1])
cases = {
    "texts": cases_of(st.sampled_from(made_filters.TEXTS)),
    "numbers": cases_of(NUMBERS),
    "any": cases_of(made_filters.values),
}


def assert_columns_equal_plain_reading(
    columns: AttributeColumns,
    changes: Sequence[tuple[int, Attributes | None]],
    filters: Sequence[Filter],
    row_count: int,
) -> None:
    """Applies the changes, and compares every filter over every row after them."""
    items: dict[int, Attributes] = {}
    for row, attributes in changes:
        if attributes is None:
            columns.drop(row)
        else:
            columns.put(row, attributes)
        items[row] = attributes or {}

    for where in filters:
        found = columns.matching(where, row_count)

        expected = np.full(row_count, holds(where, {}))
        for row in (row for row in items if row < row_count):
            expected[row] = holds(where, items[row])
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("values", cases)
def test_a_filter_finds_the_rows_that_the_plain_reading_finds(values: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(case=cases[values], row_count=st.sampled_from([101, 150, 0, 1, 4]))
    def compare(case: Case, row_count: int) -> None:
        assert_columns_equal_plain_reading(AttributeColumns(), *case, row_count)

    compare()


class ForgetfulColumns(AttributeColumns):
    """Sabotages drop(): a row keeps its value."""

    def drop(self, row: int) -> None:
        """Does nothing."""


class RoundingColumns(AttributeColumns):
    """Sabotages integers: they are floats."""

    def put(self, row: int, attributes: Attributes) -> None:
        """Rounds beyond 2**53."""
        rounded: dict[str, AttributeValue] = {
            name: float(value) if type(value) is int else value
            for name, value in attributes.items()
        }
        super().put(row, rounded)


class ConfusingColumns(AttributeColumns):
    """Sabotages flags: they are numbers."""

    def put(self, row: int, attributes: Attributes) -> None:
        """Stores True as 1."""
        confused: dict[str, AttributeValue] = {
            name: int(value) if isinstance(value, bool) else value
            for name, value in attributes.items()
        }
        super().put(row, confused)


@pytest.mark.parametrize("sabotaged", [ForgetfulColumns, RoundingColumns, ConfusingColumns])
def test_the_comparison_sees_a_sabotaged_column(sabotaged: Callable[[], AttributeColumns]) -> None:
    @settings(
        max_examples=2000,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,  # looking for more of them takes most of the time
    )
    # Of two rows, so that one is often dropped that has a value.
    @given(case=cases_of(NUMBERS, [0, 100]))
    def compare(case: Case) -> None:
        assert_columns_equal_plain_reading(sabotaged(), *case, 101)

    with pytest.raises(AssertionError):
        compare()


def test_many_rows_with_many_changes_are_read_plainly() -> None:
    """Gaps of lists are closed, codes reused and columns grown."""
    choice = random.Random(7)

    def attributes(row: int) -> Attributes:
        made: dict[str, AttributeValue] = {
            "tags": tuple(choice.choices("abcdefgh", k=choice.randrange(5))),
            "path": f"folder-{choice.randrange(3)}/{row}.png",
            "count": choice.randrange(-20, 20),
        }
        if choice.random() < 0.02:
            rare: list[AttributeValue] = [choice.random(), choice.random() < 0.5, "word"]
            made["rare"] = choice.choice(rare)
        return made

    changes = [
        (row, None if choice.random() < 0.2 else attributes(row))
        for row in (choice.randrange(3000) for _ in range(12_000))
    ]
    filters: list[Filter] = [
        OneOf("tags", ("a",)),
        OneOf("tags", ("a", "h", "x")),
        OneOf("tags", tuple("abcdefx")),
        StartsWith("path", "folder-1/1"),
        InRange("count", at_least=-3, below=7),
        OneOf("count", tuple(range(-60, 60, 2))),
        InRange("rare", above=0.5),
        Exists("rare") & ~OneOf("rare", ("word",)),
        Exists("tags"),
    ]

    assert_columns_equal_plain_reading(AttributeColumns(), changes, filters, 3000)


def test_integers_beyond_float_precision_are_distinguished() -> None:
    """2**53 + 1 is neither 2.0**53 nor the next integer, and ranges end between them."""
    columns = AttributeColumns()
    for row, value in enumerate([2**53, 2**53 + 1, 2**63 - 1, 2.0**53]):
        columns.put(row, {"n": value})

    assert columns.matching(OneOf("n", (2**53 + 1,)), 4).tolist() == [False, True, False, False]
    assert columns.matching(OneOf("n", (2.0**53,)), 4).tolist() == [True, False, False, True]
    assert columns.matching(OneOf("n", (2.0**63,)), 4).tolist() == [False] * 4
    assert columns.matching(InRange("n", above=2.0**53), 4).tolist() == [False, True, True, False]
    assert columns.matching(InRange("n", at_least=2.0**63), 4).tolist() == [False] * 4


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ([-(2**63), -1, 0, 1, 2**62, 2**63 - 1], [-(2**63), 1, 2**61, 2**62, 2**63 - 2, 2**63 - 1]),
        ([0.0, -0.0, 0.5, 1e300, -2.0, 7.0], [-0.0, 0.5, 1e-300, 3.0, 1e300, 7]),
    ],
)
def test_one_of_many_numbers(held: Sequence[float], wanted: Sequence[float]) -> None:
    """They are close together or far apart, up to the limits of 64 bits; both zeros are equal."""
    changes = [(row, {"n": value}) for row, value in enumerate(held)]
    where = OneOf("n", tuple(wanted))

    assert_columns_equal_plain_reading(AttributeColumns(), changes, [where], len(held) + 2)


def test_rows_never_put_are_items_without_attributes() -> None:
    """Only negations and the empty conjunction match them."""
    columns = AttributeColumns()
    columns.put(1, {"a": "x"})

    assert columns.matching(Not(Exists("a")), 3).tolist() == [True, False, True]
    assert columns.matching(AllOf(()), 3).tolist() == [True, True, True]
    assert columns.matching(AnyOf(()), 3).tolist() == [False, False, False]
    assert columns.matching(Not(Exists("other")), 3).tolist() == [True, True, True]


def test_names_that_few_rows_have_cost_little() -> None:
    """20,000 rows have 5 names each that no other row has: rows times names would be 20 GB."""
    columns = AttributeColumns()

    for row in range(20_000):
        columns.put(row, {f"name-{row}-{number}": number for number in range(5)})

    assert columns.matching(Exists("name-19999-4"), 20_000).nonzero()[0].tolist() == [19_999]
    assert array_bytes(columns) < 20_000 * 5 * 16 * 2


def array_bytes(columns: AttributeColumns) -> int:
    """Returns the bytes of the integer columns' arrays."""
    total = 0
    for of_name in columns._columns.values():
        for column in of_name.values():
            held = getattr(column, "_values")  # noqa: B009
            total += held._values_R.nbytes + held._is_present_R.nbytes
    return total


def test_values_without_rows_are_dropped() -> None:
    """Texts, words and names are freed with the last row that has them."""
    columns = AttributeColumns()
    for row in range(100):
        columns.put(row, {"text": f"t{row}", "words": (f"w{row}", "all"), "kept": f"k{row}"})
    for row in range(100):
        columns.put(row, {"kept": f"k{row % 3}"})

    assert list(columns._columns) == ["kept"]
    assert columns.matching(OneOf("kept", ("k2",)), 100).sum() == 33
    assert np.count_nonzero(columns.matching(Exists("text"), 100)) == 0
