"""Cursors: the remaining items of an answer as bytes and back, and nothing else."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tandem import errors
from tandem.contract.content import Modality
from tandem.contract.search.answer import (
    NO_SECONDS,
    Coverage,
    Explanation,
    FoundItem,
    NeighbourSummary,
    RerankSummary,
    ScoreTerm,
    SearchResult,
    ordering_stage,
)
from tandem.contract.search.answer_names import (
    DegradationKind,
    ErrorReason,
    NeighbourStopReason,
    RerankStopReason,
)
from tandem.contract.search.query_wire import page_query_from_proto
from tandem.search.cursors.cursor import MAX_CURSOR_BYTES, seal_cursor, unseal_cursor
from tandem.search.cursors.cursor_wire import make_cursor, page_of
from tandem.v1 import search_cursor_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.grid import sampled

floats = st.floats(-1, 1, width=32)
answer = SearchResult(
    (),
    "model-a",
    NO_SECONDS,
    Coverage(1, 2, 0, None, {1: ErrorReason.DEADLINE_EXCEEDED}),
    RerankSummary(7, RerankStopReason.TIME),
    (DegradationKind.RERANK_PARTIAL, DegradationKind.SHARDS_MISSING),
)
explanations = st.builds(
    Explanation,
    st.lists(st.builds(ScoreTerm, st.text(max_size=20), floats, floats), max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=9), st.integers(1, 2000), max_size=4),
)


def found(
    item_id: str,
    rank: int,
    *,
    modality: Modality = Modality.IMAGE,
    similarity: float = 0.5,
    score: float = 0.5,
    match: tuple[float, float] | None = None,
    retrieve_rank: int | None = None,
    explanation: Explanation | None = None,
) -> FoundItem:
    """Returns an item at this rank."""
    logit, probability = match or (None, None)
    return FoundItem(
        item_id,
        similarity,
        logit,
        probability,
        rank if retrieve_rank is None else retrieve_rank,
        rank,
        None,
        modality=modality,
        score=score,
        explanation=explanation,
        ordered_by=ordering_stage(logit, None),
    )


@st.composite
def rests(draw: st.DrawFn) -> list[FoundItem]:
    """Yields what follows an answer's items."""
    start = draw(st.integers(2, 900))
    explained = draw(st.booleans())
    ids = draw(
        st.lists(
            st.text(
                st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=9
            ),
            min_size=1,
            max_size=9,
            unique=True,
        )
    )
    return [
        found(
            item_id,
            rank,
            similarity=draw(floats),
            modality=draw(st.sampled_from(Modality)),
            match=draw(st.none() | st.tuples(st.floats(-30, 30, width=32), floats)),
            retrieve_rank=draw(st.integers(1, 1000)),
            score=draw(floats),
            explanation=draw(explanations) if explained else None,
        )
        for rank, item_id in enumerate(ids, start=start)
    ]


def request(cursor: bytes, **fields: object) -> pb.SearchItemsRequest:
    """Returns the request for the next page."""
    return pb.SearchItemsRequest(**({"index_id": "scenes", "cursor": cursor} | fields))  # type: ignore[arg-type]


def some(count: int) -> list[FoundItem]:
    """Returns the rest after ten items."""
    return [found(f"item-{n}", n) for n in range(11, 11 + count)]


def page_from_proto(asked: pb.SearchItemsRequest) -> SearchResult:
    """Returns the page that a request asks for."""
    return page_of(page_query_from_proto(asked))[0]


def cursor_of(rest: list[FoundItem], return_n: int = 3) -> bytes:
    """Returns the cursor for the rest."""
    return make_cursor(rest, answer, index_id="scenes", return_n=return_n)


@given(rests(), st.integers(1, 4))
def test_pages_return_the_remaining_items_in_order(rest: list[FoundItem], return_n: int) -> None:
    """All of it, once, bit for bit, with what applies to the whole answer."""
    cursor = cursor_of(rest, return_n)
    given_: list[FoundItem] = []
    while cursor:
        page = page_from_proto(request(cursor))
        assert 1 <= len(page.items) <= return_n
        assert page.model_fingerprint == "model-a"
        assert page.coverage == answer.coverage
        assert page.rerank == answer.rerank
        assert page.degradations == answer.degradations
        given_ += page.items
        cursor = page.next_cursor

    assert given_ == rest


def test_neighbour_scores_are_kept_in_the_cursor() -> None:
    """Only of an answer that has them; an unscored item has none on its page either."""
    first, second = some(2)
    scored = replace(first, neighbour_score=-0.25, ordered_by=ordering_stage(None, -0.25))
    summary = NeighbourSummary(1, NeighbourStopReason.COMPLETE, "neighbours-a", {})
    asked = replace(answer, neighbours=summary)

    page = page_from_proto(
        request(make_cursor([scored, second], asked, index_id="scenes", return_n=5))
    )
    other = page_from_proto(request(cursor_of([first, second])))

    assert page.items == (scored, second)
    assert page.neighbours == asked.neighbours
    assert other.items == (first, second)
    assert other.neighbours is None


def test_a_page_may_have_another_size() -> None:
    """The next one continues after it, with the first one's size again."""
    page = page_from_proto(request(cursor_of(some(20)), return_n=7))
    following = page_from_proto(request(page.next_cursor))

    assert [entry.final_rank for entry in page.items] == list(range(11, 18))
    assert [entry.final_rank for entry in following.items] == [18, 19, 20]


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x01")
def test_bytes_that_are_not_a_cursor_are_refused(junk: bytes) -> None:
    """Whatever they are: bare, sealed, or in place of the compressed payload."""
    sealed = seal_cursor(junk)
    checksum = zlib.crc32(junk).to_bytes(4, "big")
    for cursor in (junk or b"\0", sealed, b"\x01" + checksum + junk):
        with pytest.raises(errors.CursorInvalid):
            page_from_proto(request(cursor))


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_a_damaged_cursor_is_refused(random: Random) -> None:
    cursor = cursor_of(some(5))
    place = random.randrange(len(cursor))
    changed = bytearray(cursor)
    changed[place] ^= random.randrange(1, 256)
    for damaged in (bytes(changed), cursor[:place] or b"\0", cursor + bytes([place % 256])):
        with pytest.raises(errors.CursorInvalid):
            page_from_proto(request(damaged))
    assert page_from_proto(request(cursor))


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_a_forged_cursor_is_accepted_whole_or_refused(random: Random) -> None:
    """Its checksum is right and its payload is not: there is never another error."""
    held = bytearray(unseal_cursor(cursor_of(some(4))))
    for _ in range(random.randrange(1, 6)):
        held[random.randrange(len(held))] = random.randrange(256)
    try:
        page = page_from_proto(request(seal_cursor(bytes(held))))
    except (errors.CursorInvalid, errors.KOutOfRange):
        return
    assert page.items
    assert all(math.isfinite(entry.similarity) for entry in page.items)


columns: dict[str, list[object]] = {
    "item_ids": ["a"],
    "similarities": [0.5],
    "match_logits": [math.nan],
    "match_probabilities": [0.0],
    "retrieve_ranks": [1],
    "modalities": ["MODALITY_IMAGE"],
    "scores": [0.5],
}


def held_by(**fields: object) -> bytes:
    """Returns what a cursor of one item holds, with these fields changed."""
    usual = {"index_id": "scenes", "return_n": 3, "given_count": 10} | columns
    held = search_cursor_pb2.SearchCursor(**(usual | fields))  # type: ignore[arg-type]
    return held.SerializeToString()


def forged(**fields: object) -> bytes:
    """Returns a cursor of one item with these fields changed."""
    return seal_cursor(held_by(**fields))


@pytest.mark.parametrize(
    "fields",
    sampled(
        [
            {"item_ids": []},
            {"item_ids": [""]},
            {"item_ids": ["a" * 257]},
            {"item_ids": ["a", "b"]},
            {"similarities": [math.nan]},
            {"match_logits": [math.inf]},
            {"scores": [-math.inf]},
            {"modalities": ["MODALITY_UNSPECIFIED"]},
            {"modalities": [77]},
            {"given_count": 0},
            {"given_count": -5},
            {"given_count": 2**31 - 1},
            {"return_n": 0},
            {"return_n": -1},
            {"return_n": 1001},
            {"retrieve_ranks": [0]},
            {"retrieve_ranks": [-5]},
            {"retrieve_ranks": [2**31 - 1]},
            {"model_version": -1},
            {name: value * 2 for name, value in columns.items()},
            {"explanations": [pb.Explanation(terms=[pb.ScoreTerm()] * 120_000)]},
            {"explanations": [pb.Explanation(ranks=[pb.StageRank()] * 120_000)]},
            {"index_id": "pets"},
            {"explanations": [pb.Explanation(), pb.Explanation()]},
            {"neighbour_scores": [0.5, 0.5]},
            {"neighbour_scores": [math.inf]},
            {
                name: [value] * 2001
                for name, value in {"item_ids": "a", "similarities": 0.5}.items()
            },
        ],
        fault=min,
    ),
)
def test_inconsistent_cursors_are_refused(fields: dict[str, object]) -> None:
    """Columns of different lengths, no numbers, no modality, no item."""
    assert page_from_proto(request(forged())).items

    with pytest.raises(errors.CursorInvalid):
        page_from_proto(request(forged(**fields)))


def test_a_cursor_that_holds_gigabytes_is_refused_unopened() -> None:
    bomb = zlib.compress(bytes(64 * 2**20), 9)
    sealed = b"\x01" + zlib.crc32(bomb).to_bytes(4, "big") + bomb
    assert len(sealed) < 100_000

    with pytest.raises(errors.CursorInvalid, match="too large"):
        page_from_proto(request(sealed))
    with pytest.raises(errors.CursorInvalid, match="bytes"):
        page_from_proto(request(bytes(MAX_CURSOR_BYTES + 1)))


def test_an_item_may_be_there_in_both_modalities() -> None:
    """If it was replaced by the other while both were searched."""
    twice: dict[str, object] = {name: value * 2 for name, value in columns.items()}

    page = page_from_proto(
        request(forged(**(twice | {"modalities": ["MODALITY_IMAGE", "MODALITY_TEXT"]})))
    )

    assert [entry.item_id for entry in page.items] == ["a", "a"]


@pytest.mark.parametrize(
    "added",
    [
        b"\x7a\x00" * 1_500_000,  # explanations
        # ids
        # coverage, each with a missing shard
        b"\x2a\xc0\x84\x3d" + b"\x2a\x00" * 500_000,  # one coverage with many
        b"\x7a\xc0\x84\x3d" + b"\x0a\x00" * 500_000,  # one explanation with many terms
        # degradations one by one
        # similarities one by one
        b"\xfa\x01\x00",  # a field that there is not
        b"\x0b" * 1_000,  # groups
        b"\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
    ids=lambda added: added[:4].hex(),
)
def test_an_oversized_cursor_is_refused_unparsed(added: bytes) -> None:
    """A few kilobytes that would become a hundred megabytes of messages."""
    with pytest.raises(errors.CursorInvalid):
        page_from_proto(request(seal_cursor(held_by() + added)))


def test_a_cursor_of_a_later_format_is_refused_by_it() -> None:
    cursor = b"\x02" + cursor_of(some(3))[1:]

    with pytest.raises(errors.CursorInvalid, match="format 2"):
        page_from_proto(request(cursor))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query", {"text": "a cup"}),
        ("retrieve_k", 20),
        ("filter", {}),
        ("target_modality", "MODALITY_TEXT"),
        ("full_coverage_required", True),
    ],
)
def test_a_cursor_allows_no_other_options(name: str, value: object) -> None:
    """It could not be respected; the error names the field."""
    asked = request(cursor_of(some(3)), **{name: value})

    with pytest.raises(errors.CursorInvalid, match=name):
        page_from_proto(asked)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"index_id": "pets"}, errors.CursorInvalid),
        ({"index_id": ""}, errors.IndexIdInvalid),
        ({"return_n": 1001}, errors.KOutOfRange),
    ],
)
def test_a_page_is_refused_by_name(fields: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        page_from_proto(request(cursor_of(some(3)), **fields))


def test_the_largest_cursor_fits() -> None:
    """2,000 items with the longest ids that compress badly, each explained."""
    random = Random(0)
    rest = [
        found(
            "".join(chr(random.randrange(33, 127)) for _ in range(256)),
            rank,
            modality=Modality.TEXT,
            retrieve_rank=rank - 1,
            match=(random.uniform(-9, 9), random.random()),
            score=random.random(),
            explanation=Explanation(
                tuple(
                    ScoreTerm("normalised_match_probability", random.random(), random.random())
                    for _ in range(3)
                ),
                dict.fromkeys(("retrieve", "rerank", "diversity"), rank),
            ),
        )
        for rank in range(2, 2002)
    ]

    cursor = cursor_of(rest)

    assert len(cursor) < MAX_CURSOR_BYTES
    assert len(page_from_proto(request(cursor, return_n=1000)).items) == 1000
