"""The postprocessor next to the SDK's answers."""

import base64
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import ImageNode, NodeWithScore, TextNode

from tandem.client import Access, Client, ImageContent, StoredItem
from tandem.errors import Unauthenticated
from tandem_llama_index import TandemRerank


@pytest.fixture(scope="session")
def rerank(system: dict[str, Any], access: Access) -> TandemRerank:
    """The postprocessor."""
    return TandemRerank(
        address=system["address"], index_id="scenes", timeout_seconds=60.0, access=access
    )


def stored(item_id: str) -> NodeWithScore:
    """Returns a node that stands for a stored image."""
    return NodeWithScore(
        node=ImageNode(id_=item_id, metadata={"item_id": item_id, "modality": "image"}), score=0.0
    )


async def test_stored_images_are_ordered_by_the_cross_encoder(
    rerank: TandemRerank, sdk: Client, system: dict[str, Any], caption: str
) -> None:
    """By both calls; the picture of the caption was last before."""
    ids = list(reversed(list(system["captions"])[:8]))
    scores = sdk.score_documents(caption, [StoredItem(each) for each in ids], index_id="scenes")
    logits = {each: score.match_logit for each, score in zip(ids, scores.scores, strict=True)}
    given = [stored(each) for each in ids]

    for ordered in (
        rerank.postprocess_nodes(given, query_str=caption),
        await rerank.apostprocess_nodes(given, query_str=caption),
    ):
        assert [each.node.node_id for each in ordered] == sorted(
            ids, key=lambda each: logits[each] or 0.0, reverse=True
        )
        assert ordered[0].node.node_id == ids[-1]
        assert (ordered[0].score or 0.0) > 0.5


def test_texts_and_images_rank_by_probability_and_missing_items_last(
    rerank: TandemRerank, system: dict[str, Any], caption: str
) -> None:
    """Text of any other retriever, without an id of Tandem's."""
    other = list(system["captions"].values())[-1]
    first = next(iter(system["captions"]))
    texts = [NodeWithScore(node=TextNode(id_=each, text=each)) for each in (other, caption)]
    given = [stored("none"), *texts, stored(first)]

    ordered = rerank.postprocess_nodes(given, query_str=caption)

    names = [each.node.node_id for each in ordered]
    assert ({*names[:2]}, names[2:]) == ({first, caption}, [other, "none"])
    scores = [each.score or 0.0 for each in ordered]
    assert scores == sorted(scores, reverse=True)
    assert scores[1] > 0.5
    assert ordered[3].score is None
    top = rerank.model_copy(update={"top_n": 2}).postprocess_nodes(given, query_str=caption)
    assert [each.node.node_id for each in top] == names[:2]
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        TandemRerank(index_id="scenes", top_n=-1)


def test_pictures_of_other_retrievers_are_scored_as_stored_ones(
    rerank: TandemRerank, sdk: Client, caption: str, system: dict[str, Any], tmp_path: Path
) -> None:
    """In base64 or as a file; no URL is fetched."""
    [item] = sdk.fetch_items([next(iter(system["captions"]))], index_id="scenes")
    assert isinstance(item.content, ImageContent)
    (tmp_path / "a.png").write_bytes(item.content.image_bytes)
    encoded = base64.b64encode(item.content.image_bytes).decode()
    nodes = [
        ImageNode(id_="url", image_url="http://127.0.0.1:9/a.png"),
        ImageNode(id_="file", image_path=str(tmp_path / "a.png")),
        ImageNode(id_="base64", image=encoded),
        ImageNode(id_="uri", image=f"data:image/png;base64,{encoded}"),
        ImageNode(id_="away", image_path=str(tmp_path / "away.png")),
        ImageNode(id_="broken", image="no base64!"),
    ]
    ordered = rerank.postprocess_nodes(
        [*(NodeWithScore(node=each) for each in nodes), stored(item.item_id)], query_str=caption
    )

    pictures = [each.score for each in ordered[:4]]
    assert pictures == pytest.approx([pictures[0]] * 4, abs=1e-4)
    last = {each.node.node_id: each.score for each in ordered[4:]}
    assert last == dict.fromkeys(("url", "away", "broken"))


def test_long_texts_are_cut_unless_they_are_to_be_refused(
    rerank: TandemRerank, caption: str
) -> None:
    """And every option survives JSON, but a misspelt one is refused."""
    texts = ["The harbour was rebuilt. " * 60, caption]
    given = [NodeWithScore(node=TextNode(text=each)) for each in texts]
    strict = rerank.model_copy(update={"truncation_policy": "error"})

    ordered = rerank.postprocess_nodes(given, query_str=caption)
    refused = strict.postprocess_nodes(given, query_str=caption)

    assert ordered[0].node.get_content() == caption
    assert ordered[1].score is not None
    assert refused[1].score is None
    assert TandemRerank.from_json(strict.to_json()).to_json() == strict.to_json()
    assert '"truncation_policy": "error"' in strict.to_json()
    with pytest.raises(ValueError, match="top_k"):
        TandemRerank(index_id="scenes", top_k=2)  # type: ignore[call-arg]


async def test_refusals_keep_their_names(
    rerank: TandemRerank, system: dict[str, Any], access: Access
) -> None:
    """And no token is serialised."""
    strange = rerank.model_copy(update={"access": Access("wrong", access.authority)})

    with pytest.raises(Unauthenticated):
        strange.postprocess_nodes([stored("a")], query_str="one cat")
    with pytest.raises(Unauthenticated):
        await strange.apostprocess_nodes([stored("a")], query_str="one cat")
    with pytest.raises(ValueError, match="needs the query"):
        rerank.postprocess_nodes([stored("a")])
    assert system["token"] not in rerank.to_json() + repr(rerank)
