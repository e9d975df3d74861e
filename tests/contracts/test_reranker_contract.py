"""Every reranker keeps one contract, here and behind a socket."""

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from rerank_svc.servicer import RerankServicer
from tandem import errors
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.content import Tokens
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_RERANK_K
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.local_reranker import LocalReranker
from tandem.local.reranking.reranker import PART_BYTES, ModelReranker
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import Manifest
from tandem.remote.reranker import RemoteReranker
from tandem.stages.reranking import Candidates, GivenCandidates, Matches, Reranker, ScoreQuery
from tandem.v1.rerank_service_pb2_grpc import add_RerankServiceServicer_to_server
from tests.support.chassis.served import served
from tests.support.rerank_svc.served_reranker import (
    IMAGE_COUNT,
    INDEX_ID,
    MAP_BYTES,
    OTHER_MODEL_INDEX_ID,
    QUERY,
    TEXTS,
    image_tokens,
    text_tokens,
    undescribed,
    write_store,
)

TIMEOUT_SECONDS = 20.0


@pytest_asyncio.fixture(
    scope="module",
    params=[("here", 0), ("here in parts", 1 << 20), ("behind a socket", 1 << 20)],
    ids=lambda each: f"{each[0]}, {'cache' if each[1] else 'no cache'}",
)
async def reranker(
    request: pytest.FixtureRequest,
    tiny_served: ServedModel,
    tiny_manifest: Manifest,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Reranker]:
    place, cache_bytes = request.param
    path: Path = write_store(tmp_path_factory.mktemp("rerank") / "shard", tiny_manifest)
    with ThreadPoolExecutor(2) as threads:
        turns = CallerTurns(threads, 2)
        candidates = CandidateReader(
            lambda: ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES),
            turns,
            tiny_manifest.fingerprint,
        )
        part_bytes = 10_000 if place == "here in parts" else PART_BYTES
        scorer = ModelReranker(
            tiny_served, candidates, turns, cache_bytes=cache_bytes, part_bytes=part_bytes
        )
        await scorer.open()
        local = LocalReranker(scorer, undescribed)
        if place.startswith("here"):
            yield local
        else:
            servicer = RerankServicer(local, TIMEOUT_SECONDS)
            async with served(partial(add_RerankServiceServicer_to_server, servicer)) as channel:
                yield RemoteReranker(channel, 0)
        threads.shutdown()
        await candidates.close()


@pytest.fixture
def query(tiny_manifest: Manifest) -> ScoreQuery:
    return ScoreQuery(INDEX_ID, tiny_manifest.fingerprint)


def soon() -> Deadline:
    return Deadline.after(TIMEOUT_SECONDS)


async def scores(
    reranker: Reranker, query: ScoreQuery, item_ids: Sequence[str], tokens: Tokens = QUERY
) -> Matches:
    """Returns the scores of one request; raises its error."""
    return (await reranker.score(query, [Candidates(tokens, item_ids)], soon())).matches


def logits(matches: Matches) -> list[float]:
    return [match.logit for match in matches.values()]


async def test_text_scores_stored_images(
    reranker: Reranker, query: ScoreQuery, tiny_served: ServedModel, tiny_manifest: Manifest
) -> None:
    """Each score is the model's for that pair alone; what is gone has none."""
    seeds = [7, 3, 19, 0]
    alone = [
        await tiny_served.match_logits(
            [QUERY.ids], [image_tokens(seed, tiny_manifest).values], TIMEOUT_SECONDS
        )
        for seed in seeds
    ]

    found = await scores(reranker, query, [*(f"i-{seed}" for seed in seeds), "gone"])

    assert list(found) == [f"i-{seed}" for seed in seeds]
    expected = np.concatenate([inferred.values for inferred in alone])
    np.testing.assert_allclose(logits(found), expected, atol=1e-4)
    assert len({round(logit, 3) for logit in logits(found)}) > 1
    # This model was not calibrated.
    assert {match.probability for match in found.values()} == {None}


async def test_an_image_scores_stored_texts_of_different_lengths(
    reranker: Reranker, query: ScoreQuery, tiny_served: ServedModel, tiny_manifest: Manifest
) -> None:
    """They are padded to different lengths and still come back in order."""
    picture = image_tokens(5, tiny_manifest)
    alone = [
        await tiny_served.match_logits([TEXTS[item_id].ids], [picture.values], TIMEOUT_SECONDS)
        for item_id in ("t-long", "t-short")
    ]

    found = await scores(reranker, query, ["t-long", "t-short"], picture)

    expected = np.concatenate([inferred.values for inferred in alone])
    np.testing.assert_allclose(logits(found), expected, atol=1e-4)


async def test_tokens_score_as_the_item_that_has_them(
    reranker: Reranker, query: ScoreQuery, tiny_manifest: Manifest
) -> None:
    """Without being stored, in the order given; another model's are refused."""
    seeds = [7, 3, 19]
    stored = await scores(reranker, query, [f"i-{seed}" for seed in seeds])
    given = [image_tokens(seed, tiny_manifest) for seed in seeds]

    matches, scored = await reranker.score_given(
        GivenCandidates(query.fingerprint, QUERY, given), soon()
    )

    np.testing.assert_allclose([each.logit for each in matches], logits(stored), atol=1e-4)
    assert scored.reranker == tiny_manifest.fingerprint
    assert scored.cost.pair_count == 3
    with pytest.raises(errors.ModelMismatch):
        await reranker.score_given(GivenCandidates("another", QUERY, given), soon())


async def test_each_request_of_a_batch_is_scored_as_if_it_were_alone(
    reranker: Reranker, query: ScoreQuery, tiny_manifest: Manifest
) -> None:
    """Of either modality; one that cannot be scored fails alone."""
    requests = [
        Candidates(QUERY, ["i-1", "gone", "i-2"]),
        Candidates(QUERY, ["i-0", "t-short"]),
        Candidates(text_tokens(2, 30, 3), ["i-2", "i-3"]),
        Candidates(QUERY, ["i-narrow"]),
        Candidates(image_tokens(5, tiny_manifest), ["t-long", "t-short"]),
        Candidates(text_tokens(2, 10**6, 3), ["i-0"]),
    ]

    scored = await reranker.score(query, requests, soon())

    for number, (each, outcome) in enumerate(zip(requests, scored.outcomes, strict=True)):
        if number % 2:
            assert isinstance(outcome, errors.TokensInvalid)
            with pytest.raises(errors.TokensInvalid):
                await scores(reranker, query, each.item_ids, each.tokens)
            continue
        assert not isinstance(outcome, errors.TandemError)
        alone = await scores(reranker, query, each.item_ids, each.tokens)
        assert list(outcome) == list(alone)
        np.testing.assert_allclose(logits(outcome), logits(alone), atol=1e-4)


async def test_the_largest_request_is_scored(reranker: Reranker, query: ScoreQuery) -> None:
    """1,000 candidates are many of the model's batches and come back in order."""
    item_ids = [f"i-{number}" for number in range(IMAGE_COUNT)]
    assert len(item_ids) == MAX_RERANK_K
    halves = [await scores(reranker, query, half) for half in (item_ids[:500], item_ids[500:])]

    found = await scores(reranker, query, item_ids)

    expected = [logit for half in halves for logit in logits(half)]
    np.testing.assert_allclose(logits(found), expected, atol=1e-4)
    assert len({round(logit, 3) for logit in logits(found)}) > 20


@pytest.mark.parametrize("item_id", ["t-foreign", "t-endless"])
async def test_a_stored_text_that_the_model_cannot_read_is_refused(
    reranker: Reranker, query: ScoreQuery, tiny_manifest: Manifest, item_id: str
) -> None:
    """The store takes what it is given; the model would fail for everyone in the batch."""
    with pytest.raises(errors.TokensInvalid):
        await scores(reranker, query, [item_id], image_tokens(1, tiny_manifest))


async def test_an_item_of_the_querys_modality_is_named(
    reranker: Reranker, query: ScoreQuery
) -> None:
    """Callers of ScoreDocuments send ids, and tokens that encoder_svc returned they have not."""
    with pytest.raises(errors.TokensInvalid) as caught:
        await scores(reranker, query, ["i-0", "t-short"])

    assert "item 't-short' has the query's modality" in caught.value.message
    assert "send items of the other modality" in caught.value.message


async def test_an_index_of_another_model_is_refused_naming_both(
    reranker: Reranker, tiny_manifest: Manifest
) -> None:
    """Whichever of query and served model is not the index's."""
    last_year = "model-of-last-year"
    for claimed in (tiny_manifest.fingerprint, last_year):
        with pytest.raises(errors.ModelMismatch) as caught:
            await scores(reranker, ScoreQuery(OTHER_MODEL_INDEX_ID, claimed), ["i-0"])
        assert caught.value.metadata == {
            "request_fingerprint": tiny_manifest.fingerprint,
            "index_fingerprint": last_year,
        }


async def test_an_unknown_index_is_not_found(reranker: Reranker, tiny_manifest: Manifest) -> None:
    with pytest.raises(errors.IndexNotFound):
        await scores(reranker, ScoreQuery("absent", tiny_manifest.fingerprint), ["i-0"])


async def test_no_time_left_is_deadline_exceeded(reranker: Reranker, query: ScoreQuery) -> None:
    candidates = Candidates(text_tokens(2, 44, 3), ["i-0"])

    with pytest.raises(errors.DeadlineExceeded):
        await reranker.score(query, [candidates], Deadline.after(0.0))
