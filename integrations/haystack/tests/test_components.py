"""Both components next to the SDK's answers, alone and in a pipeline."""

from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.core.errors import PipelineRuntimeError
from haystack.dataclasses import ByteStream
from haystack.utils import Secret

from tandem.client import Client, FusionMethod, ImageContent, StoredItem
from tandem.errors import DeadlineExceeded, FilterInvalid, TandemError, Unauthenticated
from tandem_haystack import TandemRanker, TandemRetriever


@pytest.fixture(scope="session")
def given(system: dict[str, Any]) -> dict[str, Any]:
    """Where the system is."""
    return {
        "index_id": "scenes",
        "address": system["address"],
        "timeout_seconds": 60.0,
        "token": Secret.from_token(system["token"]),
        "authority_file": system["authority_file"],
    }


async def test_the_retriever_answers_as_the_sdk(
    given: dict[str, Any], sdk: Client, caption: str
) -> None:
    """Order, scores, pictures and attributes, by both calls."""
    retriever = TandemRetriever(**given, top_k=3)
    expected = sdk.search(caption, index_id="scenes", return_n=3, content_included=True).items

    for answer in (retriever.run(caption), await retriever.run_async(caption)):
        found = answer["documents"]
        assert [document.id for document in found] == [item.item_id for item in expected]
        for document, item in zip(found, expected, strict=True):
            assert isinstance(item.content, ImageContent)
            assert document.blob is not None
            assert document.blob.data == item.content.image_bytes
            assert (document.blob.mime_type or "").startswith("image/")
            assert document.meta["attributes"] == item.attributes
            assert document.meta["degradations"] == []
            assert document.score == pytest.approx(item.match_probability)


def test_options_are_passed_on(given: dict[str, Any], system: dict[str, Any], caption: str) -> None:
    """Filters with a control; texts; and a degraded answer says so."""
    retriever = TandemRetriever(**given, top_k=24)
    every = retriever.run(caption)["documents"]
    stacked = retriever.run(caption, where="layout = stacked")["documents"]
    likely = TandemRetriever(**given, top_k=24, search_options={"min_probability": 0.5})
    texts = TandemRetriever(**given, target_modality="text")
    degraded = TandemRetriever(**given | {"address": system["degraded_address"]}, top_k=2)

    assert len({document.meta["attributes"]["layout"] for document in every}) > 1
    assert {document.meta["attributes"]["layout"] for document in stacked} == {"stacked"}
    assert 0 < len(likely.run(caption)["documents"]) < len(every)
    assert texts.run(caption, top_k=1)["documents"][0].content == caption
    assert [each.meta["degradations"] for each in degraded.run(caption)["documents"]] == [
        ["RERANK_SKIPPED"]
    ] * 2
    with pytest.raises(ValueError, match="sound"):
        TandemRetriever(**given, target_modality="sound")


async def test_the_ranker_orders_by_the_cross_encoder(
    given: dict[str, Any], sdk: Client, system: dict[str, Any], caption: str
) -> None:
    """By both calls; the picture of the caption was last before."""
    ids = list(reversed(list(system["captions"])[:8]))
    scores = sdk.score_documents(caption, [StoredItem(each) for each in ids], index_id="scenes")
    logits = {each: score.match_logit for each, score in zip(ids, scores.scores, strict=True)}
    documents = [Document(id=i, meta={"item_id": i, "modality": "image"}) for i in ids]
    ranker = TandemRanker(**given)

    for answer in (
        ranker.run(caption, documents),
        await ranker.run_async(caption, documents),
    ):
        ordered = [document.id for document in answer["documents"]]
        assert ordered == sorted(ids, key=lambda each: logits[each] or 0.0, reverse=True)
        assert ordered[0] == ids[-1]
        assert (answer["documents"][0].score or 0.0) > 0.5
    assert documents[0].score is None
    assert ranker.run(caption, [])["documents"] == []


def test_given_images_and_texts_are_ranked_too(
    given: dict[str, Any], sdk: Client, system: dict[str, Any], caption: str
) -> None:
    """Documents of other stores; a missing item comes last."""
    [item] = sdk.search(caption, index_id="scenes", return_n=1, content_included=True).items
    assert isinstance(item.content, ImageContent)
    other = list(system["captions"].values())[-1]
    documents = [
        Document(id="none", meta={"item_id": "none", "modality": "image"}),
        Document(id="other", content=other),
        Document(id="same", content=caption),
        Document(id="picture", blob=ByteStream(item.content.image_bytes)),
    ]

    ordered = TandemRanker(**given).run(caption, documents)["documents"]

    scores = {document.id: document.score for document in ordered}
    assert {document.id for document in ordered[:2]} == {"picture", "same"}
    assert [document.id for document in ordered[2:]] == ["other", "none"]
    assert scores["picture"] == pytest.approx(item.match_probability, abs=0.02)
    assert [each or 0.0 for each in scores.values()] == sorted(
        (each or 0.0 for each in scores.values()), reverse=True
    )
    assert scores["none"] is None
    top = TandemRanker(**given, top_k=2).run(caption, documents)["documents"]
    assert top == ordered[:2]


def test_long_texts_are_cut_unless_they_are_to_be_refused(
    given: dict[str, Any], caption: str
) -> None:
    """A passage over the model's limit had no score, and no reason anywhere."""
    documents = [Document(content="The harbour was rebuilt. " * 60), Document(content=caption)]

    ordered = TandemRanker(**given).run(caption, documents)["documents"]
    strict = TandemRanker(**given, truncation_policy="error").run(caption, documents)["documents"]

    assert [document.content == caption for document in ordered] == [True, False]
    assert ordered[1].score is not None
    assert strict[1].score is None
    with pytest.raises(ValueError, match="cut"):
        TandemRanker(**given, truncation_policy="cut")


async def test_refusals_keep_their_names(given: dict[str, Any], caption: str) -> None:
    """A pipeline has them as the cause of its own."""
    refused: list[tuple[dict[str, Any], type[TandemError]]] = [
        ({"where": "layout ="}, FilterInvalid),
        ({"token": Secret.from_token("wrong")}, Unauthenticated),
        ({"timeout_seconds": 0.0001}, DeadlineExceeded),
    ]
    for changes, named in refused:
        retriever = TandemRetriever(**{**given, **changes})
        with pytest.raises(named):
            retriever.run(caption)
        with pytest.raises(named):
            await retriever.run_async(caption)
    pipeline = Pipeline()
    pipeline.add_component("retriever", TandemRetriever(**given, where="layout ="))
    with pytest.raises(PipelineRuntimeError) as raised:
        pipeline.run({"retriever": {"query": caption}})
    assert isinstance(raised.value.__cause__, FilterInvalid)


def test_a_pipeline_is_written_and_read(
    given: dict[str, Any],
    system: dict[str, Any],
    caption: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the name of the token's variable, and not the token."""
    monkeypatch.setenv("SUITE_TOKEN", system["token"])
    named = given | {"token": Secret.from_env_var("SUITE_TOKEN")}
    pipeline = Pipeline()
    pipeline.add_component("retriever", TandemRetriever(**named, top_k=5, where="layout = stacked"))
    pipeline.add_component("ranker", TandemRanker(**named, top_k=2, truncation_policy="error"))
    pipeline.connect("retriever.documents", "ranker.documents")

    written = pipeline.dumps()
    read = Pipeline.loads(
        written, allowed_modules=["tandem_haystack.retriever", "tandem_haystack.ranker"]
    )

    assert system["token"] not in written
    assert "truncation_policy: error" in written
    asked = {"retriever": {"query": caption}, "ranker": {"query": caption}}
    answer, expected = read.run(asked), pipeline.run(asked)
    assert len(answer["ranker"]["documents"]) == 2
    assert answer["ranker"]["documents"] == expected["ranker"]["documents"]
    with pytest.raises(ValueError, match="serialize"):
        TandemRanker(**given).to_dict()


@pytest.mark.parametrize("fusion", [FusionMethod.ADD, "ADD"])
def test_a_pipelines_file_has_enums_by_their_names(
    fusion: FusionMethod | str,
    given: dict[str, Any],
    system: dict[str, Any],
    caption: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a file is written by hand, too."""
    monkeypatch.setenv("SUITE_TOKEN", system["token"])
    options = {"fusion": fusion, "cross_encoder_weight": 0.5, "consistency_tokens": ()}
    pipeline = Pipeline()
    named = given | {"token": Secret.from_env_var("SUITE_TOKEN"), "search_options": options}
    pipeline.add_component("retriever", TandemRetriever(**named, top_k=2))

    written = pipeline.dumps()
    read = Pipeline.loads(written, allowed_modules=["tandem_haystack.retriever"])

    assert "fusion: ADD" in written
    asked = {"retriever": {"query": caption}}
    assert read.run(asked) == pipeline.run(asked)


def test_a_negative_count_is_refused(given: dict[str, Any], caption: str) -> None:
    """It would leave out the last documents without a word."""
    with pytest.raises(ValueError, match="-1 documents cannot be kept"):
        TandemRanker(**given, top_k=-1).run(caption, [Document(content=each) for each in "ab"])
    with pytest.raises(TandemError):
        TandemRetriever(**given, top_k=-1).run(caption)
