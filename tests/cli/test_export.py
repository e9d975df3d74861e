"""`tandem export` and docs/export.md."""

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.cli.index.export import _fetched
from tandem.client import Client
from tandem.client.testing import FakeServer
from tandem.errors import AnswerTooLarge, ServiceUnavailable, TandemError
from tandem.v1.content_service_pb2 import FetchItemsRequest, FetchItemsResponse
from tests.support.orchestrator_svc.demo_index import demo_index

PAGE = (Path(__file__).parents[2] / "docs/export.md").read_text()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", *arguments])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_attributes_keep_their_types(tmp_path: Path) -> None:
    """Also of names that are taken, and of several types."""
    values = {
        "price": [1, 2.5, None],
        "year": [2**60, 1999, None],
        "sold": [True, None, False],
        "tags": [["a", "b"], [], None],
        "odd": ["3", 3, True],
        "ID": ["x", None, "ü"],
        "embedding": ["mine", None, None],
    }
    items = [
        (
            f"item-{number:03}",
            f"text {number}" if number % 2 else f"picture {number}".encode(),
            {
                name: each[number % 3]
                for name, each in values.items()
                if each[number % 3] is not None
            },
        )
        for number in range(300)
    ]
    file = tmp_path / "all.parquet"
    file.write_text("replaced")
    with FakeServer() as fake, Client(fake.address) as client:
        assert all(each.error is None for each in client.ingest(items, index_id="photos"))
        bare = run("photos", str(file), "--address", fake.address)
        assert bare.exit_code == 0, bare.output
        table = pq.read_table(file)
        whole = run("photos", str(file), "--contents", "--address", fake.address)
        assert whole.exit_code == 0, whole.output
        given = client.describe_model().fingerprint

    assert table["id"].to_pylist() == [f"item-{number:03}" for number in range(300)]
    assert set(table["modality"].to_pylist()) == {"text", "image"}
    assert pa.types.is_fixed_size_list(table.schema.field("embedding").type)
    lengths = np.linalg.norm(np.stack(table["embedding"].to_numpy()), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5)
    assert table["price"].to_pylist()[:3] == [1.0, 2.5, None]
    assert table["year"].to_pylist()[:3] == [2**60, 1999, None]
    assert table["sold"].to_pylist()[:3] == [True, None, False]
    assert table["tags"].to_pylist()[:3] == [["a", "b"], [], None]
    assert table["odd"].to_pylist()[:3] == ['"3"', "3", "true"]
    assert table["attribute_ID"].to_pylist()[:3] == ["x", None, "ü"]
    assert table["attribute_embedding"].to_pylist()[:3] == ["mine", None, None]
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert about["tandem.model_fingerprint"] == given

    with_contents = pq.read_table(file)
    assert with_contents["text"].to_pylist()[:2] == [None, "text 1"]
    assert with_contents["image"].to_pylist()[:2] == [b"picture 0", None]
    assert with_contents.drop_columns(["text", "image"]).equals(table)


def test_large_contents_are_read_in_parts_and_a_busy_server_again() -> None:
    failures: list[TandemError] = [ServiceUnavailable(service="x", why="it is busy")]

    def call(method: str, request: FetchItemsRequest) -> FetchItemsResponse:
        if len(request.item_ids) > 10:
            raise AnswerTooLarge(limit=1)
        if failures:
            raise failures.pop()
        response = FetchItemsResponse()
        for item_id in request.item_ids:
            response.items.add(item_id=item_id)
            response.embeddings.add()
        return response

    ids = [str(number) for number in range(100)]
    answers = list(_fetched(call, "photos", iter(ids), contents=True))

    assert [item.item_id for each in answers for item in each.items] == ids
    assert max(len(each.items) for each in answers) == 8


def test_what_cannot_be_exported_leaves_the_file(tmp_path: Path) -> None:
    file = tmp_path / "all.parquet"
    file.write_text("kept")
    with FakeServer() as fake, Client(fake.address) as client:
        list(client.ingest([("one", "text")], index_id="photos"))
        client.remove(["one"], index_id="photos")
        for index_id, why in (("photos", "has no items"), ("nosuch", "")):
            result = run(index_id, str(file), "--address", fake.address)
            assert result.exit_code == 1
            assert why in str(result.exception)

    assert (file.read_text(), list(tmp_path.iterdir())) == ("kept", [file])


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test-references` installs DuckDB and LanceDB, and .ci/run runs it."""
    monkeypatch.chdir(tmp_path)
    with demo_index() as address:
        for line in "".join(blocks("console")).splitlines():
            command = shlex.split(line.removeprefix("$ tandem "))
            result = CliRunner().invoke(app, [*command, "--address", address])
            assert result.exit_code == 0, result.output
    for name, code in zip(["duckdb", "lancedb"], blocks("python"), strict=True):
        pytest.importorskip(name)
        exec(compile(code, "docs/export.md", "exec"), {})
