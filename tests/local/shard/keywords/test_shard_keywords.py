"""A shard's words follow its store: writes, filters, a restart, and a build during writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tandem.contract.content import Modality, TextContent
from tandem.contract.filtering.attribute_wire import checked_filter, filter_to_proto
from tandem.contract.filtering.filter_expression import parse_filter
from tandem.contract.search_path import KeywordState
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.settings import ShardSettings
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.short_searches import ShortSearches
from tandem.stages.item_write import Delete, Drop, Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import KeywordFound
from tandem.v1 import index_service_pb2 as pb
from tandem.wire.retrieval import answer_to_proto, query_from_proto
from tests.support.index_svc.encoded_items import search_request
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item, unit_vector

MAP_BYTES = 16 << 20
KEYWORDS = ShardSettings(keywords_enabled=True)
QUERY = ShardQuery(
    index_id="scenes",
    fingerprint=FINGERPRINT,
    modality=Modality.IMAGE,
    query_modality=Modality.TEXT,
    embeddings=[unit_vector(1), unit_vector(2)],
    retrieve_k=10,
    keywords="cup",
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[StoredShard]:
    shard = open_shard(tmp_path)
    yield shard
    shard.close()


def open_shard(path: Path, settings: ShardSettings = KEYWORDS) -> StoredShard:
    shard = StoredShard(ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES), path, settings)
    shard.load()
    return shard


def picture(item_id: str, caption: str, seed: int = 0) -> ItemRecord:
    return replace(image_item(item_id, seed), attributes={"caption": caption, "style": "noto"})


def write(shard: StoredShard, *items: ItemRecord) -> None:
    shard.write(Upsert("scenes", FINGERPRINT, items)).result(10)


def words_of(shard: StoredShard, query: ShardQuery = QUERY) -> KeywordFound:
    found = shard.search(query).keyword_found
    assert found is not None
    return found


def found(shard: StoredShard, query: ShardQuery = QUERY) -> list[str]:
    words = words_of(shard, query)
    assert words.state is KeywordState.SEARCHED
    return [hit.item_id for hit in words.hits]


def test_a_search_by_words_sees_earlier_writes(shard: StoredShard) -> None:
    write(shard, picture("a", "a red cup"), picture("b", "a dog"), text_item("c", 1))
    assert found(shard) == ["a"]

    write(shard, picture("b", "a cup and a cup"))
    assert found(shard) == ["b", "a"]
    assert found(shard, replace(QUERY, modality=Modality.TEXT, keywords="seed")) == ["c"]

    shard.write(Delete("scenes", ["b"])).result(10)
    assert found(shard) == ["a"]


def test_each_hit_has_its_similarity_to_every_embedding(shard: StoredShard) -> None:
    """The same numbers as a search by embeddings gives."""
    write(shard, *(picture(f"{n}", "cup" + " word" * n, seed=n) for n in range(1, 4)))

    answer = shard.search(replace(QUERY, embeddings_included=True))
    words = answer.keyword_found

    assert words is not None
    assert words.embeddings is not None
    for one, similarities_K in zip(answer.found, words.similarities, strict=True):
        by_id = {hit.item_id: hit.similarity for hit in one.hits}
        assert [by_id[hit.item_id] for hit in words.hits] == similarities_K.tolist()
    np.testing.assert_array_equal(words.embeddings[0], unit_vector(1))


def test_a_filter_and_k_apply_to_words_too(shard: StoredShard) -> None:
    plain = replace(picture("b", "cup"), attributes={"caption": "cup", "style": "plain"})
    write(shard, picture("a", "cup"), plain, picture("c", "cup"))

    where = parse_filter("style = noto")

    assert found(shard, replace(QUERY, filter=checked_filter(filter_to_proto(where)))) == ["a", "c"]
    assert found(
        shard, replace(QUERY, filter=checked_filter(filter_to_proto(where)), retrieve_k=1)
    ) == ["a"]


def test_a_restart_builds_the_words_from_the_store(tmp_path: Path) -> None:
    shard = open_shard(tmp_path)
    write(shard, picture("a", "cup"), picture("b", "cup"), picture("c", "dog"))
    shard.close()

    shard = open_shard(tmp_path)
    try:
        shard.work_after_load["keyword build"].join(60)
        assert found(shard) == ["a", "b"]
        write(shard, picture("c", "cup"))
        assert found(shard) == ["a", "b", "c"]
    finally:
        shard.close()


def test_until_the_build_ends_a_search_says_so(shard: StoredShard) -> None:
    write(shard, picture("a", "cup"))
    source = shard.index("scenes").keywords
    assert source is not None
    source.index.begin_build()

    assert words_of(shard).state is KeywordState.BEING_BUILT
    source.index.end_build()
    assert found(shard) == ["a"]


def test_a_shard_that_keeps_no_words_says_so(tmp_path: Path) -> None:
    shard = open_shard(tmp_path, ShardSettings())
    try:
        write(shard, picture("a", "cup"))
        assert words_of(shard).state is KeywordState.DISABLED
        assert shard.search(replace(QUERY, keywords="")).keyword_found is None
    finally:
        shard.close()


def test_dropping_an_index_drops_its_words(shard: StoredShard) -> None:
    write(shard, picture("a", "cup"))
    shard.write(Delete("scenes", ["a"])).result(10)
    shard.write(Drop("scenes")).result(10)

    write(shard, picture("b", "cup"))

    assert found(shard) == ["b"]


def test_words_and_what_they_find_cross_the_wire(shard: StoredShard) -> None:
    long_text = replace(text_item("a", 1), content=TextContent("a cup of tea"))
    write(shard, long_text, text_item("b", 2))
    request = search_request([1, 2])
    request.keywords = "tea"

    response = answer_to_proto(shard.search(query_from_proto(request)))

    [hit] = response.keyword_hit_list.hits
    assert response.keyword_hit_list.state == pb.KEYWORD_STATE_SEARCHED
    assert hit.item_id == "a"
    assert hit.score > 0
    assert hit.similarities[0] == pytest.approx(1)
    assert not answer_to_proto(shard.search(query_from_proto(search_request([1])))).HasField(
        "keyword_hit_list"
    )


def test_a_search_by_words_never_runs_in_the_event_loop() -> None:
    """It may have to wait for changes to become visible."""
    short = ShortSearches()
    query = replace(QUERY, embeddings=[unit_vector(1)], keywords="")
    short.note(query, 0.0)

    assert short.expects(query)
    assert not short.expects(replace(query, keywords="cup"))
