"""`tandem search`: what was found as JSON and as files, and why nothing was."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.cli.search.found_files import FoundFiles, file_name
from tandem.client import FoundItem
from tandem.contract.content import TextContent
from tandem.contract.filtering.attribute_wire import attributes_to_proto, filter_from_proto
from tandem.contract.filtering.attributes import AttributeValue
from tandem.contract.filtering.filters import holds
from tandem.errors import TextEmpty
from tandem.v1 import search_service_pb2 as pb
from tests.cli.test_search import FULL, serving_search
from tests.support.pictures.pictures import encoded, plain

PICTURE = encoded(plain(), "PNG")
HOSTILE_IDS = [
    "../../escape",
    "/etc/passwd",
    ".hidden",
    "a/b\\c",
    "[/x]",
    "\x1b[31mred\r\n",
    "x" * 256,
    "é" * 120,
    "-rf",
    "nul\u202e",
    "👩\u200d🚀",
]
ATTRIBUTES: dict[str, AttributeValue] = {"style": "noto", "n": 3}


async def found(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """Every hostile id, a picture and a text in turn; by filters and probability as asked."""
    if request.query.text == "bad":
        raise TextEmpty()
    items = []
    for number, item_id in enumerate(HOSTILE_IDS, 1):
        item = pb.RankedItem(
            item_id=item_id, final_rank=number, retrieve_rank=number, match_probability=0.25
        )
        if request.content_included or request.attributes_included:
            for name, value in attributes_to_proto(ATTRIBUTES).items():
                item.attributes[name].CopyFrom(value)
        if request.content_included:
            if number % 2:
                item.content.image = PICTURE
            else:
                item.content.text = f"[/x] \x1b[31m {number}"
        items.append(item)
    if request.HasField("filter") and not holds(filter_from_proto(request.filter), ATTRIBUTES):
        items = []
    if request.min_probability > 0.25:
        items = []
    items = items[: request.return_n or 20]
    return pb.SearchItemsResponse(items=items, coverage=FULL, next_cursor=b"\xff" * bool(items))


def run(*arguments: str) -> Result:
    with serving_search(found) as (address, _):
        return CliRunner().invoke(app, ["search", *arguments, "--address", address])


def printed(result: Result) -> str:
    """Returns what the command printed on stdout, without the server's log of this process."""
    lines = result.stdout.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line))


def test_json_is_one_object_with_every_field() -> None:
    result = run("two", "dogs", "--json", "--attributes", "--explain", "--all-modalities-included")

    answer = json.loads(printed(result))
    assert result.exit_code == 0
    assert answer["query"] == "two dogs"
    assert [item["item_id"] for item in answer["items"]] == HOSTILE_IDS
    assert set(answer["items"][0]) == set(FoundItem.__slots__)
    assert answer["items"][1]["content"] == {"text": "[/x] \x1b[31m 2"}
    assert answer["items"][0]["attributes"] == ATTRIBUTES
    assert answer["coverage"]["item_count"] == 60
    assert answer["why_empty"] == []
    assert printed(result).isascii()


def test_json_of_several_queries_has_an_answer_each(tmp_path: Path) -> None:
    """A refusal by its name, and in the exit status; a byte-order mark is not part of a query."""
    queries = tmp_path / "queries.txt"
    queries.write_bytes("\ufefftwo dogs\r\nbad\r\n".encode())

    result = run("--queries", str(queries), "--json")

    first, second = json.loads(printed(result))["answers"]
    assert result.exit_code == 1
    assert (first["query"], len(first["items"])) == ("two dogs", len(HOSTILE_IDS))
    assert (second["query"], second["error"]["reason"]) == ("bad", "TEXT_EMPTY")


def test_what_was_found_is_saved_inside_the_folder(tmp_path: Path) -> None:
    """A file an item, byte by byte, whatever its id; and again without a word."""
    folder = tmp_path / "out" / "found"
    for _ in range(2):
        result = run("two dogs", "--save", str(folder), "--json")
        assert result.exit_code == 0, result.stderr
        answer = json.loads(printed(result))
        files = [Path(item["file"]) for item in answer["items"]]
        assert len(set(files)) == len(HOSTILE_IDS)
        for number, file in enumerate(files, 1):
            assert file.parent == folder
            expected = PICTURE if number % 2 else f"[/x] \x1b[31m {number}".encode()
            assert file.read_bytes() == expected
            assert file.suffix == (".png" if number % 2 else ".txt")
    assert {each for each in tmp_path.rglob("*") if each.is_file()} == set(files)


def test_a_foreign_file_is_kept_and_reported(tmp_path: Path) -> None:
    item = [FoundItem("a", 0, None, None, 1, 1, TextContent("mine"))]
    (tmp_path / "a.txt").write_text("theirs")
    files = FoundFiles(tmp_path)
    files.save(item)
    assert (files.refused_count, files.paths) == (1, {})
    assert (tmp_path / "a.txt").read_text() == "theirs"

    (tmp_path / "a.txt").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.txt").symlink_to(tmp_path / "elsewhere" / "target")
    files.save(item)
    assert files.refused_count == 2
    assert not (tmp_path / "elsewhere" / "target").exists()


def test_different_ids_get_different_file_names() -> None:
    ids = ["a/b", "a_b", "a:b", "x" * 200, "x" * 201, "..", "."]
    names = [file_name(each, ".png") for each in ids]

    assert len(set(names)) == len(ids)
    assert all("/" not in name and not name.startswith(".") for name in names)
    assert file_name("scenes-test-000250-0", ".png") == "scenes-test-000250-0.png"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--where", "stlye = noto"], "no item has an attribute 'stlye'; did you mean 'style'?"),
        (["--where", "zzz = 1"], "no item has an attribute 'zzz'; items have 'n', 'style'"),
        (["--where", "style = blob"], "no item is as --where says"),
        (
            ["--min-probability", "0.5"],
            "left out all 11 that were found; the most probable has",
        ),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_an_empty_answer_says_why(options: list[str], why: str, *, as_json: bool) -> None:
    """Nothing found is an answer: status 0."""
    result = run("two dogs", *options, *(["--json"] if as_json else []))

    assert result.exit_code == 0, result.stderr
    if as_json:
        assert why in "".join(json.loads(printed(result))["why_empty"])
        assert why in result.stderr
    else:
        assert "nothing found: " in result.stdout
        assert why in result.stdout
        assert "similarity" not in printed(result)


def test_nothing_of_an_item_is_cut_or_obeyed() -> None:
    result = run("two dogs", "--attributes", "--explain", "--all-modalities-included")

    for item_id in HOSTILE_IDS:
        escaped = item_id.replace("\x1b", r"\x1b").replace("\r", r"\r").replace("\n", r"\n")
        assert escaped.replace("\u202e", r"\u202e") in result.stdout
    assert "\x1b" not in printed(result)
    assert r"[/x] \x1b[31m 2" in result.stdout
