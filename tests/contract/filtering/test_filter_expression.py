"""Filters as written on the command line: read as meant, or refused at the character."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandem.contract.filtering.filter_expression import FilterTextInvalid, parse_filter
from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    check_filter,
)

A, B, C = Exists("a"), Exists("b"), Exists("c")


MEANINGS: list[tuple[str, Filter]] = [
    ("style = noto", OneOf("style", ("noto",))),
    ("style != noto", Not(OneOf("style", ("noto",)))),
    ("style in (noto, blob)", OneOf("style", ("noto", "blob"))),
    ("style not in (noto,blob)", Not(OneOf("style", ("noto", "blob")))),
    ("count < 2", InRange("count", below=2)),
    ("count>2", InRange("count", above=2)),
    ("count>=-2.5", InRange("count", at_least=-2.5)),
    ("path starts with train/1", StartsWith("path", "train/1")),
    ("path starts with '3'", StartsWith("path", "3")),
    ("not not exists a", A),
    ("exists a and exists b and exists c", AllOf((A, B, C))),
    ("exists a or exists b and exists c", AnyOf((A, AllOf((B, C))))),
    ("(exists a or exists b) and exists c", AllOf((AnyOf((A, B)), C))),
    ("not exists a and exists b", AllOf((Not(A), B))),
    ("not (exists a or exists b)", Not(AnyOf((A, B)))),
    ("a in (1, 1.0, -1e3, '1', true, \"true\")", OneOf("a", (1, 1.0, -1e3, "1", True, "true"))),
    ("a = 'two words'", OneOf("a", ("two words",))),
    (r"""a = "say \"hi\" \\" """, OneOf("a", ('say "hi" \\',))),
    ("a = 'and'", OneOf("a", ("and",))),
    ("exists 'in' and 'not' in (1, 2)", AllOf((Exists("in"), OneOf("not", (1, 2))))),
    ("a = 9223372036854775807", OneOf("a", (2**63 - 1,))),
]


def test_expressions_have_their_meaning() -> None:
    """Values of the type they look like; `and` before `or`, `not` before both."""
    read = [(written, parse_filter(written)) for written, _ in MEANINGS]

    assert read == MEANINGS
    for _, tree in read:
        check_filter(tree)


def test_numbers_are_of_the_type_they_look_like() -> None:
    tree = parse_filter("a in (1, 1.0, true, '1')")

    assert isinstance(tree, OneOf)
    assert [type(value) for value in tree.values] == [int, float, bool, str]


@pytest.mark.parametrize(
    ("written", "position", "why"),
    [
        ("", 0, "name is expected"),
        ("style noto", 6, "expected after style, not 'noto'"),
        ("style = ", 8, "a value is expected here, not the end"),
        ("a = 1 b = 2", 6, "'and', 'or' or the end is expected here, not 'b'"),
        ("(a = 1", 6, "for the '(' at 1, not the end"),
        ("a < big", 4, "a number is expected after <, not 'big'"),
        ("a in 3", 5, "'(' is expected after 'in', not '3'"),
        ("a in (1 2)", 8, "',' or ')' is expected here, not '2'"),
        ("a = 'x", 4, "has no end"),
        ("a ! 3", 2, "'!' means nothing here"),
        ("b = 1 and ä = 3", 10, "is not a name"),
        ("b = 1 and a = 1e999", 14, "finite"),
        ("b = 1 and a = 9223372036854775808", 14, "64 bits"),
        ("a > 9007199254740993", 0, "64-bit float"),
        (" and ".join(["exists a"] * 65), 0, "over 64 conditions"),
        ("(" * 1000 + "a = 1", 32, "over 32 deep"),
    ],
)
def test_a_syntax_error_is_pointed_at(written: str, position: int, why: str) -> None:
    with pytest.raises(FilterTextInvalid) as caught:
        parse_filter(written)

    assert why in caught.value.why
    assert caught.value.position == position
    _, shown, mark = caught.value.pointed_out().split("\n")
    assert shown == f"  {written}"
    assert mark.index("^") == 2 + position


words = st.sampled_from(
    [
        *("not", "and", "or", "in", "exists", "starts", "with", "true", "a", "1", "2.5", "'x'"),
        *("=", "!=", "<", ">=", "(", ")", ",", '"', "\\", "!", "\n", " "),
    ]
)


@given(st.lists(words).map(" ".join) | st.text())
@example("a = '\n'")
@example("a = " + "9" * 5000)
@example("a = " + "ä" * 5000)
def test_any_text_is_read_or_refused(written: str) -> None:
    refused = None
    try:
        check_filter(parse_filter(written))
    except FilterTextInvalid as error:
        refused = error

    if refused is not None:
        assert 0 <= refused.position <= len(written)
        assert len(refused.pointed_out().split("\n")) == 3
