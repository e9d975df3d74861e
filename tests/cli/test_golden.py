"""`tandem golden`: pools, serves the page for judging, and loses nothing; docs/golden-sets.md."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.corpus.judged_queries import read_judged_queries
from tandem.lab.evaluation.golden_set import Judgements
from tests.support.orchestrator_svc.demo_index import ITEM_IDS, demo_index

PAGE = (Path(__file__).parents[2] / "docs/golden-sets.md").read_text()
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.startswith("$ tandem ")
]


@pytest.fixture(name="address", scope="module")
def _address() -> Iterator[str]:
    with demo_index() as address:
        yield address


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("queries.txt").write_text("2\n40\n\n 70 \n40\n", encoding="utf-8")


def invoke(*words: str) -> str:
    """Runs a command that succeeds, and returns what it printed."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refusal(*words: str) -> str:
    """Runs a command that fails, and returns why."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code
    return getattr(result.exception, "message", str(result.exception)) + result.output


def start(address: str, *more: str) -> None:
    """Starts the golden set "golden" with three queries."""
    invoke("golden", "start", "golden", "--queries", "queries.txt", "--address", address, *more)


class Page:
    """What the page for judging does, without a browser."""

    def __init__(self, url: str) -> None:
        self.place, _, self.token = url.removeprefix("http://").partition("/#")

    def call(self, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        """Returns status and body of an answer; posts for another path than a content's."""
        connection = http.client.HTTPConnection(self.place, timeout=30)
        sent = {"x-golden-token": self.token, "host": self.place} | headers
        method = "POST" if path == "/judgement" else "GET"
        connection.request(method, path, json.dumps(body), sent)
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    def judge(self, query_id: str, item_id: str, grade: int) -> int:
        """Returns the status of a judgement."""
        return self.call("/judgement", [query_id, item_id, grade])[0]


@contextmanager
def judging(address: str, ended_by: signal.Signals = signal.SIGINT) -> Iterator[Page]:
    """Runs `tandem golden judge golden` as a process of its own, until a signal."""
    command = [sys.executable, "-m", "tandem.cli", "golden", "judge", "golden"]
    process = subprocess.Popen([*command, "--address", address], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Page(process.stdout.readline().split()[1])
    finally:
        process.send_signal(ended_by)
        process.communicate(timeout=60)


def pool() -> dict[str, list[str]]:
    """Returns the pool of the golden set."""
    read: dict[str, list[str]] = json.loads(Path("golden/pool.json").read_text())
    return read


def test_a_golden_set_is_judged_across_a_kill(address: str) -> None:
    """Both systems are pooled; what was judged before kill -9 is there afterwards."""
    start(address, "--depth", "3")
    texts = {each.query_id: each.content for each in read_judged_queries(Path("golden"))}
    assert sorted(map(str, texts.values())) == ["2", "40", "70"]
    runs = json.loads(Path("golden/runs.json").read_text())
    for query_id, ids in pool().items():
        assert {*ids} == {*runs["be"][query_id][:3], *runs["ce"][query_id][:3]}
    first = next(iter(texts))
    with judging(address, signal.SIGKILL) as page:
        assert page.call(f"/query/{first}") == (200, str(texts[first]).encode())
        item_id = pool()[first][0]
        assert page.call(f"/item/{quote(item_id, safe='')}")[0] == 200
        assert page.call("/judgement", [first, item_id, True])[0] == 200
        assert page.judge(first, pool()[first][1], 0) == 200
        assert page.call("/judgement", None)[0] == 200
        assert page.judge(first, item_id, 0) == 409  # Judged already, as in a second window.
    with judging(address) as page:
        grades = json.loads(page.call("/pairs/")[1])["grades"]
        assert grades[first] == {item_id: 1}
        for query_id, ids in pool().items():
            for each in set(ids) - grades[query_id].keys():
                assert page.judge(query_id, each, 0) == 200

    assert "pairs are judged" in (said := invoke("golden", "status", "golden"))
    assert re.search(r"golden: (\d+) of \1 pairs", said)
    standing = json.loads(invoke("golden", "status", "golden", "--json"))["standings"]
    assert [each["judged_count"] for each in standing] == [3, 3]
    assert read_judged_queries(Path("golden"))[0].relevant_ids == {item_id}


def test_only_the_page_itself_may_judge(address: str) -> None:
    """Not another page, which does not know the token, whatever its name resolves to."""
    start(address)
    query_id, [item_id, *_] = next(iter(pool().items()))
    judgement = [query_id, item_id, 1]
    with judging(address) as page:
        port = page.place.partition(":")[2]
        for headers in [{"x-golden-token": ""}, {"x-golden-token": "é", "host": f"evil:{port}"}]:
            assert page.call("/judgement", judgement, **headers)[0] == 403
            assert page.call("/pairs/", **headers)[0] == 403
            assert page.call(f"/item/{item_id}", **headers)[0] == 403
        for odd in [[query_id, "none of the pool", 1], [query_id, item_id, 7], ["q", "", 1], {}, 3]:
            assert page.call("/judgement", odd)[0] == 409
        for path in ["/../judge.py", "/judge.css/../../start.py", "//etc/passwd", "/query/", "/x"]:
            assert page.call(path)[0] in (404, 409)
        assert page.call("/", **{"x-golden-token": ""})[0] == 200
        assert "another process judges" in refusal("golden", "judge", "golden")

    assert not any(each.grades for each in read_judged_queries(Path("golden")))


def test_items_that_are_gone_are_not_judged(address: str) -> None:
    """One that was deleted is not found; an index without any of them is another one."""
    start(address)
    gone = pool()["q1"][0]
    with Client(address) as client:
        content = client.search("2", index_id="scenes", content_included=True).items[0].content
        assert content is not None
        client.remove([gone], index_id="scenes")
        try:
            with judging(address) as page:
                assert page.call(f"/item/{gone}")[0] == 404
        finally:
            image = str(ITEM_IDS.index(gone) * 2).encode()
            assert not [e for e in client.ingest([(gone, image)], index_id="scenes") if e.error]
    Path("golden/pool.json").write_text(json.dumps({"q1": ["of another index"]}))

    assert "none of the items" in refusal("golden", "judge", "golden", "--address", address)


def test_start_refuses_what_makes_no_golden_set(address: str) -> None:
    """And leaves nothing behind."""
    Path("there").mkdir()
    Path("empty.txt").touch()
    one = ["--queries", "queries.txt", "--address", address]

    assert "exists" in refusal("golden", "start", "there", *one)
    assert "two or more" in refusal("golden", "start", "new", *one, "--system", "be")
    assert "two or more" in refusal("golden", "start", "new", *one, "--system", "x:bm25")
    assert "either" in refusal("golden", "start", "new", *one, "--captions", "scenes")
    assert "no queries" in refusal("golden", "start", "new", "--queries", "empty.txt")
    assert "query q" in refusal("golden", "start", "new", *one, "--index", "other")
    assert "No such file" in refusal("golden", "start", "nowhere/new", *one)
    assert "pool.json is missing" in refusal("golden", "status", "there")
    assert sorted(path.name for path in Path().iterdir()) == ["empty.txt", "queries.txt", "there"]


@pytest.mark.parametrize("command", [each for each in COMMANDS if " judge " not in each])
def test_the_commands_of_the_page_run(command: str, address: str) -> None:
    if " start " not in command:
        start(address)
        query_id, [item_id, *_] = next(iter(pool().items()))
        with closing(Judgements(Path("golden"))) as judgements:
            judgements.add(query_id, item_id, 1)
    _, *words = shlex.split(command)

    assert "golden" in invoke(*words, *([] if "status" in words else ["--address", address]))
