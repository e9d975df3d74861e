"""`tandem search --bundle` and `tandem replay`."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.v1 import search_service_pb2 as pb
from tests.cli.test_search import FULL, serving_search
from tests.support.pictures.pictures import encoded, plain

SECRET = "a text that nobody else may read"


def tandem(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


class Machine:
    """Answers with the ids that it has, and keeps what it was asked."""

    def __init__(self, *item_ids: str) -> None:
        self.item_ids = item_ids
        self.asked: list[pb.SearchItemsRequest] = []

    async def __call__(self, request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        self.asked.append(request)
        items = [
            pb.RankedItem(item_id=each, final_rank=rank, similarity=0.5, match_logit=2.0 / rank)
            for rank, each in enumerate(self.item_ids, 1)
        ]
        for item in items:
            item.content.text = SECRET
        return pb.SearchItemsResponse(items=items, coverage=FULL, model_fingerprint="f" * 64)


def recorded(path: Path, machine: Machine, *arguments: str) -> Result:
    with serving_search(machine) as (address, _):
        return tandem("search", *arguments, "--bundle", str(path), "--address", address)


def replayed(path: Path, machine: Machine, *arguments: str) -> Result:
    with serving_search(machine) as (address, _):
        return tandem("replay", str(path), "--address", address, *arguments)


def test_another_machine_gives_the_same_order_or_says_where_it_does_not(tmp_path: Path) -> None:
    path, first = tmp_path / "slow.json", Machine("a", "b")
    made = recorded(path, first, "two", "spiders", "--rerank-k", "7", "--consistency-token", "AQ")
    assert made.exit_code == 0, made.output
    second = Machine("a", "b")
    same = replayed(path, second, "--content", "two spiders")
    assert (same.exit_code, "the same order" in same.output) == (0, True), same.output
    first.asked[0].ClearField("consistency_tokens")  # of the other machine's log
    assert second.asked == first.asked
    other = replayed(path, Machine("b", "a"), "--content", "two spiders", "--json")
    assert other.exit_code == 1
    found = json.loads(other.stdout.splitlines()[-1])  # behind lines of the log
    assert (found["is_same_order"], found["largest_score_difference"]) == (False, 1.0)


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_bundle_has_no_contents_unless_asked(tmp_path: Path, *, is_whole: bool) -> None:
    path, picture = tmp_path / "wrong.json", tmp_path / "query.png"
    picture.write_bytes(encoded(plain(), "PNG"))
    more = ["--bundle-contents"] if is_whole else []
    parts = [SECRET, "--image", str(picture), "--target-modality", "image"]
    assert recorded(path, Machine("a"), *parts, *more).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().count(SECRET) == is_whole
    machine = Machine("a")
    contents = [] if is_whole else ["--content", SECRET, "--content", f"@{picture}"]
    assert replayed(path, machine, *contents).exit_code == 0
    [request] = machine.asked
    text, image = (part.content for part in request.query_parts)
    assert (text.text, image.image) == (SECRET, picture.read_bytes())


def test_what_cannot_be_repeated_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    assert "--bundle-contents" in recorded(path, Machine("a"), "x", "--keywords", "y").output
    assert not path.exists()
    assert recorded(path, Machine("a"), "x", "--hybrid").exit_code == 0
    for contents in ([], ["--content", "y"], ["--content", "x", "--content", "x"]):
        assert replayed(path, Machine("a"), *contents).exit_code == 2
    whole = json.loads(path.read_text())
    for part in ({"request": 3}, {"seconds": 3}, {"seconds": {"total": "x"}}, {"items": [["a"]]}):
        path.write_text(json.dumps(whole | part | {"contents_included": True}))
        assert "no bundle" in str(replayed(path, Machine("a")).exception)
