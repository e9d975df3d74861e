"""Makes a table or a collection as another program has it, and attaches it, for tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import cast

import numpy as np

from index_svc.settings import IndexSettings
from tandem.remote.attached.attachment import Attachments, Checked
from tandem.remote.chosen_engine import engine_shard
from tandem.remote.engine_shard import EngineShard
from tests.support.engines.milvus_server import shared_milvus
from tests.support.engines.postgres import shared_postgres
from tests.support.item_store.made_items import DIMENSION, FINGERPRINT

INDEX = "photos"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the other program."""

    id: str | None
    vector: Sequence[float] | np.ndarray | None
    picture: str | None = "a.jpg"
    values: Mapping[str, object] = field(default_factory=dict)


def fill_postgres(rows: Sequence[Row], folder: Path, *, metric: str = "vector_cosine_ops") -> str:
    """Makes a table with an index, and returns its name."""
    name = f"other_{blake2b(str(folder).encode(), digest_size=6).hexdigest()}"
    dimension = next((len(r.vector) for r in rows if r.vector is not None), DIMENSION)
    values = [
        f"({_text(r.id)}, {_vector(r.vector)}, {_text(r.picture)}, "
        f"{_text(r.values.get('colour'))}, {_text(r.values.get('year'))}::int, "
        f"{_array(r.values.get('tags'))})"
        for r in rows
    ]
    postgres = shared_postgres()
    postgres.execute(
        f"CREATE EXTENSION IF NOT EXISTS vector; CREATE TABLE {name} (id text, "
        f'"vector" vector({dimension}), "the key" text, colour text, year int, tags text[])'
    )
    for start in range(0, len(values), 300):  # of which psql takes one as an argument
        part = ", ".join(values[start : start + 300])
        postgres.execute(f"INSERT INTO {name} VALUES {part}")
    postgres.execute(
        f"CREATE INDEX ON {name} (id); CREATE INDEX ON {name} USING hnsw (vector {metric})"
    )
    return name


def _text(value: object) -> str:
    return "NULL" if value is None else "'{}'".format(str(value).replace("'", "''"))


def _array(value: object) -> str:
    return (
        "NULL"
        if value is None
        else "ARRAY[" + ",".join(map(_text, cast("Sequence[str]", value))) + "]"
    )


def _vector(vector: Sequence[float] | np.ndarray | None) -> str:
    return "NULL" if vector is None else f"'[{','.join(map(str, map(float, vector)))}]'"


def fill_milvus(
    rows: Sequence[Row], folder: Path, *, metric: str = "COSINE", index_type: str = "HNSW"
) -> str:
    """Makes a loaded collection with an index, and returns its name."""
    from pymilvus import DataType, MilvusClient

    name = f"other_{blake2b(str(folder).encode(), digest_size=6).hexdigest()}"
    dimension = next((len(r.vector) for r in rows if r.vector is not None), DIMENSION)
    client = MilvusClient(f"http://{shared_milvus().address}")
    schema = MilvusClient.create_schema(auto_id=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=512)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
    schema.add_field("the_key", DataType.VARCHAR, max_length=2_000)
    schema.add_field("colour", DataType.VARCHAR, max_length=100)
    schema.add_field("year", DataType.INT64)
    schema.add_field(
        "tags", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=8, max_length=100
    )
    index = MilvusClient.prepare_index_params()
    parameters = {"M": 16, "efConstruction": 64} if index_type == "HNSW" else {"nlist": 16}
    index.add_index("vector", index_type=index_type, metric_type=metric, params=parameters)
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
    for start in range(0, len(rows), 1_000):
        client.insert(
            name,
            [
                {
                    "id": r.id,
                    "vector": r.vector,
                    "the_key": r.picture or "",
                    "colour": r.values.get("colour", ""),
                    "year": r.values.get("year", 0),
                    "tags": [*cast("Sequence[str]", r.values.get("tags", ()))],
                }
                for r in rows[start : start + 1_000]
            ],
        )
    client.query(name, filter="", limit=1, consistency_level="Strong")
    client.close()
    return name


FILLS = {"pgvector": fill_postgres, "milvus": fill_milvus}


def url_of(engine: str) -> str:
    """Returns the engine's URL."""
    return shared_postgres().url() if engine == "pgvector" else f"http://{shared_milvus().address}"


def attached(engine: str, table: str, folder: Path, **changed: object) -> Path:
    """Writes the file, with the record of a check that did not take place; returns its path."""
    entry = {
        "table": table,
        "id": "id",
        "vector": "vector",
        "picture": "the key" if engine == "pgvector" else "the_key",
        "attributes": ["colour", "year", "tags"],
    }
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True, parents=True)
    path = folder / "attached.json"
    said = {"pictures": f"file://{pictures}", "indexes": {INDEX: entry | changed}}
    path.write_text(json.dumps(said))
    read = Attachments.read(path, is_checked=False)
    checked = Checked(FINGERPRINT, DIMENSION, read.mapping(INDEX))
    said["indexes"][INDEX]["checked"] = {
        name: getattr(checked, name) for name in Checked.__dataclass_fields__
    }
    path.write_text(json.dumps(said))
    return path


def settings_of(engine: str, file: Path) -> IndexSettings:
    """Returns the settings of index_svc."""
    return IndexSettings(
        shard_number=0,
        shard_count=1,
        engine=engine,
        engine_url=url_of(engine),
        attachments=str(file),
    )


@asynccontextmanager
async def opened(engine: str, file: Path) -> AsyncIterator[EngineShard]:
    """Yields the shard."""
    shard = engine_shard(settings_of(engine, file))
    assert shard is not None
    try:
        await shard.open()
        yield shard
    finally:
        await shard.close()
