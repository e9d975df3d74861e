"""Candidates of a real item store, scored by a remote cross-encoder's API."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tandem.contract.content import Content, ImageContent, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ProbabilityCalibration
from tandem.errors import (
    DeadlineExceeded,
    ImageUnreadable,
    ModelMismatch,
    ModelOutputInvalid,
    ModelUnavailable,
    QueryContentMissing,
    TandemError,
)
from tandem.local.reranking.remote import stored_documents
from tandem.local.reranking.remote.endpoint import RemoteShape
from tandem.local.reranking.remote.pictures import data_uri
from tandem.local.reranking.remote.remote_reranker import HttpReranker
from tandem.stages.reranking import Candidates, ScoredBatch, ScoreQuery
from tests.support.pictures.large_jpegs import phone_jpeg
from tests.support.pictures.pictures import encoded, halves, noise
from tests.support.rerank_svc.remote_api import Sabotage, probability, remote_api
from tests.support.rerank_svc.remote_shard import (
    FINGERPRINT,
    PICTURES,
    TEXTS,
    RemoteShard,
    reranker_of,
)
from tests.support.rerank_svc.served_reranker import INDEX_ID, QUERY

SECONDS = 60.0
WORDS = TextContent("two dogs")


@pytest.fixture
def shard(tmp_path: Path) -> RemoteShard:
    return RemoteShard(tmp_path / "shard")


def asked(content: Content | None, *item_ids: str) -> Candidates:
    return Candidates(QUERY, item_ids, content)


async def score(
    reranker: HttpReranker, *queries: Candidates | TandemError, seconds: float = SECONDS
) -> ScoredBatch:
    return await reranker.score(ScoreQuery(INDEX_ID, FINGERPRINT), queries, Deadline.after(seconds))


def relevances(scored: ScoredBatch, number: int = 0) -> list[float]:
    outcome = scored.outcomes[number]
    assert not isinstance(outcome, TandemError), outcome
    return [each.relevance for each in outcome.values()]


def expected(query: str, *item_ids: str) -> list[float]:
    """Returns what the API says of stored items, pictures as they are stored."""
    said = {item_id: data_uri(file, 1024) for item_id, file in PICTURES.items()} | TEXTS
    return [probability(query, said[item_id]) for item_id in item_ids]


@pytest.mark.parametrize("shape", list(RemoteShape))
async def test_a_text_scores_pictures_and_a_picture_scores_texts(
    shard: RemoteShard, shape: RemoteShape
) -> None:
    """From the store, in the order asked for, with the API's scores and its identity; nobody
    calibrated them, so they are no probabilities.
    """
    picture = PICTURES["i-5"]
    with remote_api(shape=shape.value) as api:
        async with reranker_of(api, shard) as reranker:
            scored = await score(
                reranker,
                asked(WORDS, "i-3", "i-0", "i-4"),
                asked(ImageContent(picture), "t-2", "t-0"),
            )

    assert relevances(scored) == pytest.approx(expected("two dogs", "i-3", "i-0", "i-4"))
    assert relevances(scored, 1) == pytest.approx(expected(data_uri(picture, 1024), "t-2", "t-0"))
    assert all("probability=None" in str(outcome) for outcome in scored.outcomes)
    assert scored.reranker.startswith("m@")
    assert scored.cost.pair_count == 5


async def test_items_that_cannot_be_scored_have_no_score(shard: RemoteShard) -> None:
    """Items that are gone, that no decoder reads, or of the query's own modality."""
    shard.delete("i-1")
    with remote_api() as api:
        async with reranker_of(api, shard) as reranker:
            scored = await score(reranker, asked(WORDS, "i-1", "i-0", "broken", "t-0", "never"))

    [only] = expected("two dogs", "i-0")
    assert set(scored.matches) == {"i-0"}
    assert relevances(scored) == [pytest.approx(only)]
    assert api.document_counts == [1]


async def test_candidates_travel_in_batches(shard: RemoteShard) -> None:
    """Batches of two, within the endpoint's limit of concurrent calls; results stay in order."""
    with remote_api() as api:
        async with reranker_of(api, shard, batch_size=2, max_request_count=2) as reranker:
            scored = await score(reranker, asked(WORDS, *list(PICTURES)[:5]))

    assert sorted(api.document_counts) == [1, 2, 2]
    assert relevances(scored) == pytest.approx(expected("two dogs", *list(PICTURES)[:5]))


async def test_a_pair_is_requested_once(shard: RemoteShard) -> None:
    """Until its item is written again; an item without a score is requested each time."""
    with remote_api() as api:
        async with reranker_of(api, shard, cache_bytes=1 << 20) as reranker:
            await score(reranker, asked(WORDS, "i-0", "i-1"))
            again = await score(reranker, asked(WORDS, "i-1", "i-2"))
            assert api.document_counts == [2, 1]
            assert (again.cost.cache_hit_count, again.cost.pair_count) == (1, 1)

            await score(reranker, asked(TextContent("another"), "i-1"))
            assert api.document_counts == [2, 1, 1]

            shard.upsert({"i-1": ImageContent(PICTURES["i-5"])})
            fresh = await score(reranker, asked(WORDS, "i-1"))

    assert api.document_counts == [2, 1, 1, 1]
    assert relevances(fresh) == pytest.approx(expected("two dogs", "i-5"))


async def test_a_document_is_made_once(shard: RemoteShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all queries, until its item is written again; a broken picture is tried each time."""
    made: list[bytes] = []

    def counted(image_bytes: bytes, *rest: Any) -> str:
        made.append(image_bytes)
        return data_uri(image_bytes, *rest)

    monkeypatch.setattr(stored_documents, "data_uri", counted)
    with remote_api() as api:
        async with reranker_of(api, shard, document_cache_bytes=1 << 20) as reranker:
            await score(reranker, asked(WORDS, "i-0", "i-1"), asked(TextContent("more"), "i-0"))
            await score(reranker, asked(WORDS, "i-0", "i-1"))
            assert sorted(made) == sorted([PICTURES["i-0"], PICTURES["i-1"]])

            shard.upsert({"i-1": ImageContent(PICTURES["i-5"])})
            fresh = await score(reranker, asked(WORDS, "i-1", "broken"))
            await score(reranker, asked(WORDS, "broken"))

    assert made[2:].count(b"no picture") == 2
    assert made[2:].count(PICTURES["i-5"]) == 1
    assert relevances(fresh)[:1] == pytest.approx(expected("two dogs", "i-5"))


async def test_only_a_query_that_the_model_cannot_read_fails(shard: RemoteShard) -> None:
    """No content, or a picture where the model reads texts; the third is scored."""
    with remote_api() as api:
        async with reranker_of(api, shard, takes_picture_queries=False) as reranker:
            scored = await score(
                reranker,
                asked(None, "i-0"),
                asked(ImageContent(PICTURES["i-0"]), "t-0"),
                asked(WORDS, "i-0"),
            )

    assert [type(each) for each in scored.outcomes[:2]] == [QueryContentMissing] * 2
    assert relevances(scored, 2) == pytest.approx(expected("two dogs", "i-0"))


@pytest.mark.parametrize(
    ("sabotage", "kind", "seconds"),
    [
        (Sabotage.ERROR_500, ModelUnavailable, SECONDS),
        (Sabotage.FEWER, ModelOutputInvalid, SECONDS),
        (Sabotage.SLOW, DeadlineExceeded, 0.5),
    ],
)
async def test_a_failing_api_fails_the_call_by_name(
    shard: RemoteShard, sabotage: Sabotage, kind: type[TandemError], seconds: float
) -> None:
    """Nothing of it is cached: the next call is answered."""
    with remote_api() as api:
        async with reranker_of(api, shard, cache_bytes=1 << 20, batch_size=2) as reranker:
            api.sabotage = sabotage
            with pytest.raises(kind):
                await score(reranker, asked(WORDS, *PICTURES), seconds=seconds)
            api.sabotage = Sabotage.SORTED
            scored = await score(reranker, asked(WORDS, *PICTURES))

    assert relevances(scored) == pytest.approx(expected("two dogs", *PICTURES))


async def test_probabilities_are_calibrated_apart_from_logits(shard: RemoteShard) -> None:
    """sigmoid(2 * logit - 1)."""
    calibration = ProbabilityCalibration(scale=2.0, bias=-1.0)
    with remote_api() as api:
        async with reranker_of(api, shard, calibration=calibration) as reranker:
            scored = await score(reranker, asked(WORDS, "i-0"))

    [raw] = expected("two dogs", "i-0")
    logit = np.log(raw / (1 - raw))
    assert relevances(scored) == [pytest.approx(1 / (1 + np.exp(1 - 2 * logit)))]


async def test_another_models_index_is_refused(shard: RemoteShard) -> None:
    """The bi-encoder's fingerprint is the index's, as with a model in Triton."""
    with remote_api() as api:
        async with reranker_of(api, shard) as reranker:
            with pytest.raises(ModelMismatch):
                await reranker.score(
                    ScoreQuery(INDEX_ID, "another"),
                    [asked(WORDS, "i-0")],
                    Deadline.after(SECONDS),
                )
    assert not api.requests


def sent(uri: str) -> tuple[str, Image.Image]:
    kind, _, data = uri.partition(";base64,")
    return kind, Image.open(io.BytesIO(base64.b64decode(data)))


def test_pictures_are_sent_small_and_upright() -> None:
    """A small upright file as it is; a large or turned one as a JPEG; on white, not grown."""
    small = encoded(noise(), "WEBP")
    assert data_uri(small, 1024) == f"data:image/webp;base64,{base64.b64encode(small).decode()}"

    kind, picture = sent(data_uri(phone_jpeg(4032, 3024), 1024))
    assert (kind, picture.size) == ("data:image/jpeg", (1024, 768))

    exif = Image.Exif()
    exif[0x112] = 6
    kind, picture = sent(data_uri(encoded(halves(), "PNG", exif=exif), 1024))
    assert (kind, picture.size) == ("data:image/jpeg", (40, 60))

    with pytest.raises(ImageUnreadable, match="it is AVIF"):
        data_uri(encoded(halves(), "AVIF"), 1024)

    clear = Image.new("RGBA", (600, 600), (0, 0, 0, 0))
    clear.paste(noise(size=500), (50, 50))
    kind, picture = sent(data_uri(encoded(clear, "PNG"), 300))
    assert picture.size == (300, 300)
    assert np.asarray(picture)[5, 5].min() > 250
