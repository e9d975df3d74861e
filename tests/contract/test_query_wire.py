"""tandem.contract.search.query_wire: what the message of a search says."""

from __future__ import annotations

import pytest

from tandem.contract.content import Modality
from tandem.contract.search.query_wire import query_from_proto
from tandem.errors import QueryInvalid
from tandem.v1 import search_service_pb2
from tandem.v1.content_pb2 import Content


def test_an_unknown_target_is_refused() -> None:
    """It may be one of a newer version: the default would answer another question."""
    asked = search_service_pb2.SearchItemsRequest(query=Content(text="a"), index_id="scenes")
    usual = query_from_proto(asked)
    asked.target_modality = 99  # type: ignore[assignment]

    with pytest.raises(QueryInvalid, match="target_modality 99 is unknown; send a Modality"):
        query_from_proto(asked)

    assert usual.target_modality is Modality.IMAGE
