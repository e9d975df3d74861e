"""`tandem index show`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.v1 import search_service_pb2 as pb
from tests.cli.test_remove import nothing
from tests.cli.test_search import serving_search


def test_an_index_is_shown_with_its_recall_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row for each part, the recall by direction, and a warning for a shard without an answer."""
    monkeypatch.setenv("COLUMNS", "100")
    with serving_search(nothing) as (address, service):
        result = CliRunner().invoke(app, ["index", "show", "scenes", "--address", address])

    assert result.exit_code == 0, result.output
    assert service.requests == [pb.DescribeIndexRequest(index_id="scenes")]
    lines = [line.split() for line in result.stdout.splitlines()]
    assert "scenes: 30,000 images and 12 texts on 1 of 2 shards" in result.stdout
    assert ["1", "text", "Flat", "12", "0", "0", "0.0"] in lines
    row = ["1", "image", "IVF64,Flat", "nprobe=8", "30,000", "4", "70", "2.5", "99.0", "75.0"]
    assert row in lines
    assert "live recall, text to image: 75.0 % in 40 searches" in result.stdout
    assert "images on shard 1: too few items" in result.stdout
    assert "images on shard 1: writing a snapshot" in result.stdout
    assert "words for hybrid search: being read from the store" in result.stdout
    assert "shard 0 did not answer (SERVICE_UNAVAILABLE)" in result.stderr
