"""The third stage in an engine: scored as offline, whatever was written before."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tandem import Engine
from tandem.client import Modality, Search, SearchResult, StoredItem
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel, refine_as_served, refined_scores
from tandem.lab.neighbours.leaprr.served_networks import install_leaprr
from tandem.lab.neighbours.lists.neighbour_lists import SimilarityLists
from tandem.model_io.repository.manifest import read_manifest
from tests.support.neighbours.served_corpus import tiny_leaprr
from tests.support.neighbours.similarity_views import similarity_view
from tests.support.pictures.pictures import encoded, noise

WORDS = ["dog", "cat", "red", "blue", "house", "tree", "sun", "two", "boat", "cup"]
COUNT = 14
INDEX = "near"
Contents = dict[str, str | bytes]


@dataclass(frozen=True, slots=True)
class Filled:
    """Holds an engine with a neighbour model, and what its index has."""

    engine: Engine
    model: LeaprrModel
    contents: Contents
    rerank_k: int

    def ask(self, query: str, modality: Modality, rerank_k: int = 0, **options: object) -> Search:
        """Returns a search with a stored item, by default without a rerank."""
        return Search(
            StoredItem(query),
            index_id=INDEX,
            target_modality=modality,
            return_n=COUNT,
            rerank_k=rerank_k or None,
            rerank_disabled=not rerank_k,
            **options,  # type: ignore[arg-type]
        )

    def answers(self, searches: list[Search]) -> list[SearchResult]:
        """Returns the answers of one batch."""
        answers = self.engine.search_batch(searches)
        assert all(isinstance(each, SearchResult) for each in answers), answers
        return answers  # type: ignore[return-value]

    def lists(self) -> SimilarityLists:
        """Returns what lies near what, by the similarities of searches that ask for no more.

        Over a rerank, pools are what a search returns first that asks for it alone.
        """
        images, texts = _names("image"), _names("text")
        lists = similarity_view(
            self._similarity(images, texts, Modality.TEXT),
            self._similarity(images, images, Modality.IMAGE),
            self._similarity(texts, texts, Modality.TEXT),
            np.arange(COUNT),
        )
        if not self.rerank_k:
            return lists
        of_images, of_texts = (
            self._pools(queries, modality)
            for queries, modality in [(images, Modality.TEXT), (texts, Modality.IMAGE)]
        )
        return replace(lists, query_pools=of_images, item_pools=of_texts)

    def _pools(self, queries: list[str], modality: Modality) -> NDArray[np.int64]:
        found = self.answers([self.ask(each, modality, self.rerank_k) for each in queries])
        items = [[item.item_id for item in each.items[: self.rerank_k]] for each in found]
        return np.array([[int(name.rpartition("-")[2]) for name in each] for each in items])

    def _similarity(
        self, queries: list[str], items: list[str], modality: Modality
    ) -> NDArray[np.float32]:
        found = self.answers([self.ask(each, modality) for each in queries])
        of_each = [{item.item_id: item.similarity for item in each.items} for each in found]
        return np.array(
            [
                [1.0 if name == query else known[name] for name in items]
                for query, known in zip(queries, of_each, strict=True)
            ],
            np.float32,
        )


def _names(modality: str) -> list[str]:
    return [f"{modality}-{number:02}" for number in range(COUNT)]


def _contents(seed: int) -> Contents:
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, 4, replace=False)) for _ in range(COUNT)]
    pictures = [encoded(noise(100 * seed + number), "PNG") for number in range(COUNT)]
    return dict(zip([*_names("text"), *_names("image")], [*texts, *pictures], strict=True))


@pytest.fixture(name="filled", params=[0, 8], ids=["over BE", "over BE + CE 8"])
def _filled(
    tmp_path: Path, tiny_repository: Path, request: pytest.FixtureRequest
) -> Iterator[Filled]:
    """Texts of a few words and pictures of noise, after they replaced others."""
    repository = shutil.copytree(tiny_repository, tmp_path / "model_repository")
    # Without layer norms, which magnify the rounding of similarities as near as these.
    model = tiny_leaprr("paper")
    install_leaprr(model, read_manifest(repository).fingerprint, repository, request.param)
    contents = _contents(seed=1)
    with Engine(tmp_path / "engine", model=repository) as engine:
        for each in (_contents(seed=2), contents):
            outcomes = engine.ingest(list(each.items()), index_id=INDEX)
            assert [one.error for one in outcomes] == [None] * 2 * COUNT
        engine.remove(["text-03", "image-05"], index_id=INDEX)
        again = [(name, contents[name]) for name in ("text-03", "image-05")]
        assert [one.error for one in engine.ingest(again, index_id=INDEX)] == [None, None]
    with Engine(tmp_path / "engine", model=repository) as engine:
        yield Filled(engine, model, contents, request.param)


@pytest.mark.parametrize("modality", list(Modality))
def test_an_engine_scores_as_offline(filled: Filled, modality: Modality) -> None:
    """After items were replaced, removed and ingested again, and the engine was opened again."""
    is_text_query = modality is Modality.IMAGE
    queries = _names("text" if is_text_query else "image")
    names = _names("image" if is_text_query else "text")
    lists = filled.lists()
    view = lists.reversed() if is_text_query else lists
    items, scores = refined_scores(filled.model, view, is_text_query=is_text_query)
    orders = refine_as_served(filled.model, lists)
    wanted = orders.images_of_text if is_text_query else orders.texts_of_image

    found = filled.answers(
        [
            filled.ask(each, modality, filled.rerank_k, neighbours_enabled=True)
            for each in queries[:6]
        ]
    )

    for number, answer in enumerate(found):
        assert answer.neighbours is not None
        assert (answer.neighbours.stop, answer.degradations) == ("COMPLETE", ())
        served = {
            item.item_id: item.neighbour_score
            for item in answer.items
            if item.ordered_by == "NEIGHBOURS"
        }
        offline = {
            names[item]: score
            for item, score in zip(items[number].tolist(), scores[number].tolist(), strict=True)
        }
        assert served == pytest.approx(offline, abs=1e-5)
        count = len(served)
        assert [item.item_id for item in answer.items[:count]] == [
            names[item] for item in wanted[number, :count]
        ]
        rest = {item.ordered_by for item in answer.items[count:]}
        assert rest == ({"RERANK", "RETRIEVE"} if filled.rerank_k > count else {"RETRIEVE"})
