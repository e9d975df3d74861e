"""Each text query that the pages give for the demo corpus finds its answer first."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.client import Client
from tandem.contract.filtering.filter_expression import parse_filter
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.stack.stack import LocalStack

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/deploy.md"]
INDEX = "documented"


def searches(page: str) -> list[str]:
    """Returns the page's `tandem search "TEXT" ...` commands of the demo, without comments.

    Photographs of the reader's own are in an index that the command names.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r'^ *(?:\.venv/bin/)?(tandem search "[^\n]*)$', text, re.MULTILINE)
    commands = dict.fromkeys(line.partition("  #")[0].strip() for line in found)
    return [command for command in commands if "--index photos" not in command]


def ingested_count(page: str) -> int:
    """Returns how many scenes the page ingests, the same in each of its commands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    [count] = set(re.findall(r"tandem ingest scenes --count (\d+)", text))
    return int(count)


@pytest.fixture(scope="module", name="documented")
def _documented(stack: LocalStack) -> Iterator[list[Record]]:
    """Stores the pictures that every page ingests, and yields their records."""
    [count] = {ingested_count(page) for page in PAGES}
    records = list(scene_records("test", 1, count))
    with Client(stack.address, timeout_seconds=60.0) as client:
        items = ((each.record_id, each.image.read(), each.attributes) for each in records)
        assert all(outcome.error is None for outcome in client.ingest(items, index_id=INDEX))
        yield records
        client.remove([record.record_id for record in records], index_id=INDEX)


def test_every_page_has_queries() -> None:
    """Or the test below would pass by having nothing to run."""
    assert all(searches(page) for page in PAGES)


@pytest.mark.parametrize("command", sorted({each for page in PAGES for each in searches(page)}))
def test_a_documented_query_finds_its_answer(
    command: str, client: Client, documented: list[Record]
) -> None:
    """The first hit is a picture that has the query as a caption, and is probable."""
    _, _, query, *options = shlex.split(command)
    where = parse_filter(options[options.index("--where") + 1]) if "--where" in options else None
    answers = {
        record.record_id
        for record in documented
        if query in {caption.text for caption in record.captions}
    }

    first = client.search(query, index_id=INDEX, where=where).items[0]

    assert first.item_id in answers
    assert first.match_probability is not None
    assert first.match_probability > 0.5
