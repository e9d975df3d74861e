"""tandem.errors: every reason has its error, and an error survives every way it travels."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.errors import (
    ERROR_CLASSES,
    BatchSizeOutOfRange,
    IndexNotFound,
    InternalFault,
    ItemIdInvalid,
    KOutOfRange,
    ModelMismatch,
    TandemError,
    TextEmpty,
    TextTooLong,
    error_from_reason,
)
from tandem.v1 import error_reason_pb2


def test_every_error_reason_has_exactly_one_error() -> None:
    """A reason without an error, or the other way round, could never reach a caller."""
    values = error_reason_pb2.ErrorReason.DESCRIPTOR.values
    names = {value.name.removeprefix("ERROR_REASON_") for value in values}

    assert set(ERROR_CLASSES) == names - {"UNSPECIFIED"}
    assert len(TandemError.__subclasses__()) == len(ERROR_CLASSES)


def test_errors_are_named_after_their_reasons() -> None:
    """MODEL_MISMATCH is ModelMismatch; only INTERNAL is longer, Internal alone being no noun."""
    for reason, error_class in ERROR_CLASSES.items():
        name = "".join(word.capitalize() for word in reason.split("_"))
        assert error_class.__name__ == ("InternalFault" if reason == "INTERNAL" else name)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            TextTooLong(got=9000, limit=8192, unit="bytes"),
            "the text has 9,000 bytes, the limit is 8,192; shorten it",
        ),
        (
            KOutOfRange(name="retrieve_k", got=0, low=1, high=1000),
            "retrieve_k is 0; send 1 to 1,000",
        ),
        (
            BatchSizeOutOfRange(name="contents", got=65, low=1, high=64),
            "contents has 65 elements; send 1 to 64",
        ),
        (
            IndexNotFound(index_id="scenes"),
            "there is no index 'scenes'; ingest into it, or check the id",
        ),
    ],
)
def test_messages_say_what_is_wrong_and_what_to_do(error: TandemError, message: str) -> None:
    """The message is for a person who has nothing but it."""
    assert error.message == str(error) == message


def test_messages_show_hostile_ids_escaped_and_short() -> None:
    """An id goes into logs and headers, so newlines, surrogates and megabytes must not."""
    error = ItemIdInvalid(item_id="\n\ud800" + "x" * 1_000_000, why="it is not UTF-8")

    assert error.message.isascii()
    assert error.message.isprintable()
    assert len(error.message) < 300


def test_an_error_rebuilt_from_the_wire_is_the_same_error() -> None:
    """A service forwards its downstream service's error word for word."""
    sent = ModelMismatch(request="aa", index="bb")

    received = error_from_reason(sent.reason, sent.message, sent.metadata)

    assert type(received) is ModelMismatch
    assert (received.message, received.metadata) == (sent.message, sent.metadata)
    assert received.metadata == {"request_fingerprint": "aa", "index_fingerprint": "bb"}


def test_an_unknown_reason_is_an_internal_fault_that_names_it() -> None:
    """A newer service may know reasons that this version does not."""
    error = error_from_reason("QUOTA_SPENT", "no more today", {})

    assert type(error) is InternalFault
    assert "QUOTA_SPENT" in error.message
    assert "no more today" in error.message


def test_errors_cross_process_borders() -> None:
    """Worker processes hand errors back by pickling them."""
    error = pickle.loads(pickle.dumps(IndexNotFound(index_id="scenes")))

    assert type(error) is IndexNotFound
    assert error.metadata == {"index_id": "scenes"}


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text()))
def test_any_reason_rebuilds_an_error(reason: str, message: str, metadata: dict[str, str]) -> None:
    """What comes over the wire is not ours, and reading it never fails."""
    assert message in error_from_reason(reason, message, metadata).message


def test_a_stored_error_holds_no_traceback() -> None:
    """Neither its own frames nor those of what led to it."""
    try:
        try:
            raise ValueError("x")
        except ValueError as error:
            raise TextEmpty from error
    except TextEmpty as raised:
        kept = raised.kept()

    assert kept.reason == "TEXT_EMPTY"
    assert (kept.__traceback__, kept.__cause__, kept.__context__) == (None, None, None)
