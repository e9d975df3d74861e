"""Attributes and filters by Hypothesis, of values that are easily mixed up."""

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
)

# About the eighth and the 32nd byte, NUL and characters of several bytes.
TEXTS = ["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefg\0", "a\0", "ä", "x" * 32, "x" * 33]
# About where floats stop telling integers apart, and where 64 bits end.
INTEGERS = [0, 1, 3, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 1.0, 3.0, 3.5, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e300, 5e-324]
POOL: list[Value] = [*TEXTS, *INTEGERS, *REALS, True, False]

names = st.sampled_from(["a", "b"])
reals = st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Value] = (
    st.sampled_from(POOL) | st.text(max_size=3) | st.integers(-4, 4) | reals
)


def attributes_of(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Attributes]:
    """Makes attributes of these values, and lists of texts among them."""
    lists = st.lists(values.map(_as_text), max_size=4).map(tuple)
    attribute_values: st.SearchStrategy[AttributeValue] = values | values | lists
    return st.dictionaries(names, attribute_values, max_size=2)


def conditions_of(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Filter]:
    """Makes conditions with these values, and prefixes and bounds about them."""
    bounds = st.none() | values.map(_as_bound)
    ranges = st.builds(InRange, names, bounds, bounds, bounds, bounds)
    prefixes = st.builds(lambda text, end: text[:end], values.map(_as_text), st.integers(0, 34))
    return (
        st.builds(OneOf, names, st.lists(values, max_size=4).map(tuple))
        | ranges.filter(lambda condition: condition != InRange(condition.name))
        | st.builds(StartsWith, names, prefixes)
        | st.builds(Exists, names)
    )


def filters_of(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Filter]:
    """Makes trees of such conditions."""
    return st.recursive(conditions_of(values), _groups, max_leaves=6)


def _groups(children: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(children, max_size=3).map(tuple)
    return st.builds(AllOf, several) | st.builds(AnyOf, several) | st.builds(Not, children)


def _as_text(value: Value) -> str:
    return value if isinstance(value, str) else "a"


def _as_bound(value: Value) -> float:
    return 1.0 if isinstance(value, str) else float(value)
