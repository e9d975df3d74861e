"""A filter as SQL matches what reading each item's attributes matches."""

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import Filter, OneOf, StartsWith, Value, holds
from tandem.errors import AttributeInvalid
from tandem.remote.pgvector.conditions import condition, exact
from tests.support.contract import made_filters
from tests.support.engines.postgres import shared_postgres

NUMBERS = st.sampled_from([1, True, 1.0, 0.1, 2**53, 2**53 + 1, 2.0**53, 2.0**62, 2**62, 1e300])
VALUES: dict[str, st.SearchStrategy[Value]] = {
    "texts": st.sampled_from(made_filters.TEXTS),
    "numbers": NUMBERS,
    "any": made_filters.values,
}


def matching(database: psycopg.Connection, tree: Filter, held: list[Attributes]) -> list[bool]:
    values: dict[str, object] = {"held": [Jsonb(exact(each)) for each in held]}
    rows = "unnest(%(held)s::jsonb[]) WITH ORDINALITY AS item (attributes, place)"
    statement = f"SELECT {condition(tree, values)} FROM {rows} ORDER BY place"
    return [is_found for (is_found,) in database.execute(statement.encode(), values)]


@pytest.mark.parametrize("values", VALUES)
def test_a_condition_matches_what_the_plain_reading_matches(values: str) -> None:
    attributes = st.lists(made_filters.attributes_of(VALUES[values]), min_size=1, max_size=8)
    filters = made_filters.filters_of(VALUES[values])
    counts = {True: 0, False: 0}

    with psycopg.connect(shared_postgres().url(), autocommit=True) as database:

        @settings(max_examples=300, deadline=None)
        @given(st.lists(filters, min_size=1, max_size=4), attributes)
        def compare(trees: list[Filter], held: list[Attributes]) -> None:
            for tree in trees:
                expected = [holds(tree, each) for each in held]
                try:
                    found = matching(database, tree, held)
                except AttributeInvalid:
                    assert "\0" in str([tree, held]) or "\\x00" in repr([tree, held])
                    continue
                assert found == expected
                for each in expected:
                    counts[each] += 1

        compare()
    assert min(counts.values()) > 50


def test_a_text_that_postgres_cannot_hold_is_refused_by_name() -> None:
    for refused in (OneOf("a", ("x\0",)), StartsWith("a", "\0")):
        with pytest.raises(AttributeInvalid, match="NUL"):
            condition(refused, {})
    with pytest.raises(AttributeInvalid, match="NUL"):
        exact({"tags": ("fine", "\0")})
