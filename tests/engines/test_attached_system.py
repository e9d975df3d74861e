"""docs/attach.md: its file and its command, and a whole system over what they attach."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client
from tandem.client.access import Access
from tandem.contract.content import Encoding, ImageContent
from tandem.contract.deadline import Deadline
from tandem.corpus.scenes.records import scene_records
from tandem.errors import IndexReadOnly
from tandem.remote.attached.attachment import Attachments
from tandem.remote.encoder import RemoteEncoder
from tandem.stack.stack import LocalStack, Ports
from tests.support.engines.attached import Row, fill_milvus, url_of
from tests.support.engines.postgres import shared_postgres
from tests.support.local.tiny_stack import TINY_STACK

PAGE = (Path(__file__).parents[2] / "docs/attach.md").read_text(encoding="utf-8")
SCENES = list(scene_records("test", 7, 24))


async def _vectors(address: str) -> Mapping[str, np.ndarray]:
    async with Access().open_aio_channel(address) as channel:
        pictures = [ImageContent(scene.image.read()) for scene in SCENES]
        made = await RemoteEncoder(channel).encode(pictures, Deadline.after(60.0))
    return {
        scene.record_id: each.embedding
        for scene, each in zip(SCENES, made.outcomes, strict=True)
        if isinstance(each, Encoding)
    }


def _fill(engine: str, vectors: Mapping[str, np.ndarray], folder: Path) -> dict[str, str]:
    """Makes the table of the page, or a collection; returns what of the page's entry differs."""
    rows = [
        Row(name, vector * 3, f"{name}.png", {"colour": "red", "year": 1})
        for name, vector in vectors.items()
    ]
    if engine == "milvus":
        table = fill_milvus(rows, folder)
        return {"table": table, "id": "id", "vector": "vector", "picture": "the_key"}
    values = ", ".join(
        f"('{row.id}', '{np.asarray(row.vector).tolist()}', '{row.picture}', 'red', 1)"
        for row in rows
    )
    shared_postgres().execute(
        "CREATE EXTENSION IF NOT EXISTS vector; DROP TABLE IF EXISTS photos; CREATE TABLE photos "
        f"(id text PRIMARY KEY, embedding vector({len(rows[0].vector)}), file text, colour text, "  # type: ignore[arg-type]
        f"year int); INSERT INTO photos VALUES {values}; "
        "CREATE INDEX ON photos USING hnsw (embedding vector_cosine_ops)"
    )
    return {}


@TINY_STACK
@pytest.mark.parametrize("engine", ["pgvector", "milvus"])
def test_a_search_over_another_programs_rows_is_that_over_the_same_items_ingested(
    engine: str,
    tiny_stack: LocalStack,
    lone_instances: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In order, logits and contents; another model's vectors are refused with both figures."""
    pytest.importorskip({"pgvector": "psycopg", "milvus": "milvus"}[engine])
    engine_url = url_of(engine)  # skips the test where the engine is not installed
    vectors = asyncio.run(_vectors(f"127.0.0.1:{tiny_stack.ports.encoder}"))
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for scene in SCENES:
        (pictures / f"{scene.record_id}.png").parent.mkdir(parents=True, exist_ok=True)
        (pictures / f"{scene.record_id}.png").write_bytes(scene.image.read())
    [said] = re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    [command] = re.findall(r"^tandem attach .*$", PAGE, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INDEX_ENGINE", engine)
    monkeypatch.setenv("INDEX_ENGINE_URL", engine_url)
    arguments = [*command.split()[1:], "--encoder-address", f"127.0.0.1:{tiny_stack.ports.encoder}"]
    file = tmp_path / arguments[1]

    def attach(others: Mapping[str, np.ndarray], folder: Path) -> str:
        content = json.loads(said) | {"pictures": f"file://{pictures}"}
        content["indexes"]["photos"] |= _fill(engine, others, folder)
        file.write_text(json.dumps(content))
        ran = CliRunner().invoke(app, arguments)
        return f"{ran.output} {ran.exception or ''}"

    numbers = np.random.default_rng(3)
    foreign = {name: numbers.standard_normal(len(each)) for name, each in vectors.items()}
    refused = attach(foreign, tmp_path / "foreign")
    assert re.search(r"did not make these vectors: nine tenths of 24 deviate by up to \d", refused)
    assert "0.2 is allowed" in refused
    assert Attachments.read(file, is_checked=False).indexes["photos"].checked is None
    assert "photos is of model" in attach(vectors, tmp_path / "own")
    checked = Attachments.read(file).info("photos")
    assert checked.picture_count == 24
    assert checked.deviation < 0.001

    settings = {
        f"{service}_{name}": value
        for service in ("INDEX", "RERANK")
        for name, value in {
            "ENGINE": engine,
            "ENGINE_URL": engine_url,
            "ATTACHMENTS": str(file),
        }.items()
    }
    with (
        LocalStack(tmp_path / "stack", lone_instances, Ports.free(1), settings=settings) as stack,
        Client(tiny_stack.address, timeout_seconds=60.0) as own,
    ):
        stack.start()
        ingested = [(each.record_id, each.image.read()) for each in SCENES]
        assert not any(each.error for each in own.ingest(ingested, index_id="attached-twin"))
        with Client(stack.address, timeout_seconds=60.0) as client:
            for query in (SCENES[0].captions[0].text, SCENES[5].captions[0].text):
                found, expected = (
                    each.search(
                        query, index_id=index_id, rerank_k=12, return_n=12, content_included=True
                    )
                    for each, index_id in ((client, "photos"), (own, "attached-twin"))
                )
                assert [each.item_id for each in found.items] == [
                    each.item_id for each in expected.items
                ]
                for each, other in zip(found.items, expected.items, strict=True):
                    assert each.match_logit == pytest.approx(other.match_logit, abs=1e-4)
                    assert each.similarity == pytest.approx(other.similarity, abs=1e-5)
                    assert each.content == other.content
                assert found.degradations == ()
            [outcome] = client.ingest([("new", SCENES[0].image.read())], index_id="photos")
            assert isinstance(outcome.error, IndexReadOnly)
            with pytest.raises(IndexReadOnly):
                client.remove([SCENES[0].record_id], index_id="photos")
