"""What an index's scores mean: measured as if answers were gone, kept, applied and forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tandem import Engine
from tandem.client import Item
from tandem.contract.modality import Modality
from tandem.contract.model_description import ProbabilityCalibration
from tandem.contract.search.score_calibration import BI_ENCODER, ScoreCalibration
from tandem.corpus.scenes.records import scene_records
from tandem.errors import IndexNotFound, Uncalibrated
from tandem.lab.evaluation.calibration.index_calibration import captioned_queries, measured_scores

RECORDS = list(scene_records("test", 5, 24))


def stored(engine: Engine) -> None:
    """Stores the pictures and captions as `tandem ingest` does."""
    items: list[tuple[str, str | bytes]] = [
        (record.record_id, record.image.read()) for record in RECORDS
    ]
    items += [(each.caption_id, each.text) for record in RECORDS for each in record.captions]
    assert not any(each.error for each in engine.ingest(items, index_id="scenes"))


def test_null_scores_are_those_of_an_index_without_the_answers(engine: Engine) -> None:
    """Each is the best score of the same search once the answers were deleted for real."""
    stored(engine)
    queries = captioned_queries(RECORDS)
    some = [*queries[:2], *(each for each in queries if each.target is Modality.TEXT)][:4]
    contents: dict[str, str | bytes] = {
        **{record.record_id: record.image.read() for record in RECORDS},
        **{each.caption_id: each.text for record in RECORDS for each in record.captions},
    }

    for query in some:
        content: str | bytes = contents[query.query_id]
        k = len(query.grades) + 5
        whole = engine.search(
            content,
            index_id="scenes",
            target_modality=query.target,
            retrieve_k=k,
            rerank_k=k,
            return_n=k,
        )
        others = [
            each
            for each in sorted(whole.items, key=lambda item: item.retrieve_rank)
            if each.item_id not in query.relevant_ids
        ][:5]
        engine.remove(list(query.grades), index_id="scenes")
        without = engine.search(
            content,
            index_id="scenes",
            target_modality=query.target,
            retrieve_k=5,
            rerank_k=5,
            return_n=5,
        )
        stored(engine)

        assert {each.item_id for each in without.items} == {each.item_id for each in others}
        best = max(each.match_logit or 0.0 for each in without.items)
        assert best == pytest.approx(max(each.match_logit or 0.0 for each in others), abs=1e-5)


def test_a_measured_index_keeps_what_its_scores_mean(tmp_path: Path, tiny_repository: Path) -> None:
    """It answers with its own probabilities, abstains, and forgets when it is removed."""
    with Engine(tmp_path / "own", model=tiny_repository) as engine:
        stored(engine)
        caption = RECORDS[0].captions[0].text
        plain = engine.search(caption, index_id="scenes")
        with pytest.raises(Uncalibrated, match="has no null scores"):
            engine.search(caption, index_id="scenes", max_false_answer_rate=0.05)
        logits = [each.match_logit or 0.0 for each in plain.items]
        between = (logits[0] + logits[1]) / 2
        measured = ScoreCalibration(
            model_fingerprint=plain.model_fingerprint,
            query_modality=Modality.TEXT,
            target_modality=Modality.IMAGE,
            scorer=plain.rerank.reranker,
            model_version=plain.model_version,
            probability_calibration=ProbabilityCalibration(3.0, 0.0),
            null_scores=(between,) * 19,
            rerank_k=20,
        )
        similarities = replace(
            measured,
            scorer=BI_ENCODER,
            model_version=0,
            probability_calibration=None,
            null_scores=(1.0,) * 19,
        )
        assert engine.set_calibrations([measured, similarities], index_id="scenes") == 2

    with Engine(tmp_path / "own", model=tiny_repository) as engine:
        found = engine.search(caption, index_id="scenes", max_false_answer_rate=0.05)
        stranger = engine.search(
            caption, index_id="scenes", max_false_answer_rate=0.05, where="colour = none"
        )
        streamed = engine.search_stream(caption, index_id="scenes", max_false_answer_rate=0.05)
        assert [(len(each.items), each.abstained) for each in streamed] == [(0, True), (1, False)]
        [first] = found.items
        assert first.item_id == plain.items[0].item_id
        assert first.match_probability == pytest.approx(
            ProbabilityCalibration(3.0, 0.0).probability(logits[0])
        )
        assert found.rerank.probability_withheld is None
        assert (stranger.items, stranger.abstained) == ((), False)

        higher = replace(measured, null_scores=(logits[0] + 1.0,) * 19)
        engine.set_calibrations([higher], index_id="scenes")
        silent = engine.search(caption, index_id="scenes", max_false_answer_rate=0.05)
        assert (silent.items, silent.abstained) == ((), True)

        with pytest.raises(IndexNotFound):
            engine.set_calibrations([measured], index_id="nowhere")
        engine.remove_index(index_id="scenes")
        stored(engine)
        with pytest.raises(Uncalibrated, match="has no null scores"):
            engine.search(caption, index_id="scenes", max_false_answer_rate=0.05)


def test_a_filter_shows_nothing_that_the_search_without_it_would_not_score(engine: Engine) -> None:
    """Its candidates are farther ones, of which null scores say nothing, however low the bar."""
    items = [
        Item(each.record_id, image=each.image.read(), attributes={"n": n})
        for n, each in enumerate(RECORDS)
    ]
    assert not any(each.error for each in engine.ingest(items, index_id="scenes"))
    caption = RECORDS[0].captions[0].text
    plain = engine.search(caption, index_id="scenes", return_n=20)
    logits = ScoreCalibration(
        model_fingerprint=plain.model_fingerprint,
        query_modality=Modality.TEXT,
        target_modality=Modality.IMAGE,
        scorer=plain.rerank.reranker,
        model_version=plain.model_version,
        null_scores=(-1e6,) * 19,
        rerank_k=3,
    )
    similarities = replace(logits, scorer=BI_ENCODER, model_version=0, rerank_k=0)
    engine.set_calibrations([logits, similarities], index_id="scenes")
    nearest = sorted(plain.items, key=lambda each: each.retrieve_rank)
    number_of = {each.item_id: each.attributes["n"] for each in items}

    def shown(*ranks: int, rerank_disabled: bool = False) -> set[int]:
        numbers = ", ".join(str(number_of[nearest[rank].item_id]) for rank in ranks)
        found = engine.search(
            caption,
            index_id="scenes",
            where=f"n in ({numbers})",
            rerank_k=3,
            max_false_answer_rate=0.05,
            rerank_disabled=rerank_disabled,
        )
        assert found.abstained == (not found.items)
        ids = {each.item_id for each in found.items}
        return {rank for rank, each in enumerate(nearest) if each.item_id in ids}

    assert shown(0, 2, 3, 9) == {0, 2}
    assert shown(5, 9) == set()
    assert shown(5, 9, rerank_disabled=True) == {5, 9}


def test_measuring_gives_both_scorers_of_both_directions(engine: Engine) -> None:
    """A cross-encoder that prefers what does not match is refused, and so are other queries."""
    stored(engine)
    queries = captioned_queries(RECORDS)
    try:
        measured = measured_scores(engine, queries, index_id="scenes", rerank_k=10)
    except ValueError as error:
        assert "higher match logits do not mean more matches" in str(error)  # noqa: PT017
    else:
        assert len(measured) == 4
    others = [each for each in queries if each.target is Modality.TEXT][:3]
    strangers = [
        type(each)(each.query_id, each.content, each.target, {"nothing": 1}) for each in others
    ]
    with pytest.raises(ValueError, match="no query found its answer"):
        measured_scores(engine, strangers, index_id="scenes", rerank_k=10)
