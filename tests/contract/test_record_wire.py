"""RecordWire: the table is complete when it is made, and unset is not zero."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tandem.contract.record_wire import RecordWire
from tandem.v1 import search_service_pb2 as pb


@dataclass(frozen=True)
class Score:
    """The fields of a RankedItem that say None and zero apart, and one that says not."""

    item_id: str
    match_logit: float | None
    score: float = 0.0


def test_unset_is_none_only_where_a_record_may_be_none() -> None:
    """A logit of 0 is a logit, and an answer without a score has 0.0."""
    wire = RecordWire(Score, pb.RankedItem)

    assert not wire.to_proto(Score("a", None)).HasField("match_logit")
    assert wire.from_proto(pb.RankedItem(item_id="a")) == Score("a", None)
    assert wire.from_proto(wire.to_proto(Score("a", 0.0))) == Score("a", 0.0)


def test_a_field_that_one_side_lacks_is_named_when_the_table_is_made() -> None:
    """Neither a forgotten field nor a misspelt converter waits for a call."""
    with pytest.raises(KeyError, match="item_id"):
        RecordWire(Score, pb.ScoreTerm)
    with pytest.raises(KeyError, match="logit"):
        RecordWire(Score, pb.RankedItem, logit="match_logit")
