"""Reports of checkpoints: what they say of time and of ties, by a gallery of an untrained model."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from torch import Tensor

from tandem.contract.content import Modality
from tandem.corpus.records import Caption, Record
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation import offline
from tandem.lab.evaluation.gallery import Gallery, make_gallery
from tandem.lab.evaluation.offline_report import offline_report
from tandem.lab.evaluation.reports.evaluation_time import EVERY_PAIR, evaluation_times
from tandem.lab.evaluation.reports.report import BE, Report
from tandem.lab.evaluation.reports.report_markdown import report_markdown
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

TEXT, IMAGE = "text→image", "image→text"
ABOUT = {"title": "t"}


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(scene_records("test", 3, 16))


@pytest.fixture(scope="module")
def gallery(records: list[Record]) -> Gallery:
    return make_gallery(records[:8], ["en"], captions_per_picture=2, distractors=records[8:])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> Checkpoint:
    return untrained(tmp_path_factory.mktemp("one"), records, seed=0)


def untrained(folder: Path, records: list[Record], seed: int) -> Checkpoint:
    """Returns a model with weights, and an image backbone, of that seed."""
    texts = tuple(caption.text for record in records for caption in record.captions)
    save_tiny_checkpoint(folder, seed=seed, texts=texts)
    return load_checkpoint(folder)


def test_a_query_uses_its_own_sides_encoding(checkpoint: Checkpoint, gallery: Gallery) -> None:
    """A text none of the pictures', which is many times as long."""
    report = offline_report(checkpoint, gallery, [4], ABOUT)

    parts = report.seconds[TEXT]
    for name, encoding, count in ((TEXT, "encode_texts", 32), (IMAGE, "encode_images", 16)):
        query_count = len(report.languages[name])
        expected = parts[encoding] / count + report.seconds[name]["retrieve"] / query_count
        assert report.ranking(name, BE).query_seconds == pytest.approx(expected)


def test_a_report_tells_which_captions_are_of_one_picture(
    checkpoint: Checkpoint, gallery: Gallery
) -> None:
    """Two each of the eight that ask; and where each picture asks itself, or with one, nothing."""
    report = offline_report(checkpoint, gallery, [4], ABOUT, fusion_pool_size=4)

    expected = {TEXT: tuple(number // 2 for number in range(16)), IMAGE: ()}
    assert all(each.pictures == expected[each.direction] for each in report.rankings)
    single = make_gallery(gallery.records[:8], ["en"])
    assert single.query_pictures(Modality.IMAGE) == ()


def test_a_report_has_the_rank_of_every_answer(checkpoint: Checkpoint, gallery: Gallery) -> None:
    """A picture's two captions, and a caption's one picture; the first is the one that counts."""
    report = offline_report(checkpoint, gallery, [4], ABOUT)

    for each in report.rankings:
        further = 1 if each.direction == IMAGE else 0
        assert [len(ranks) for ranks in each.answer_ranks] == [1 + further] * len(each.ranks)
        assert [min(r for r in ranks if r) for ranks in each.answer_ranks] == list(each.ranks)
        assert each.ndcg is not None


def test_a_query_uses_no_more_pairs_than_there_are(
    checkpoint: Checkpoint, gallery: Gallery
) -> None:
    """A pool of a thousand out of sixteen pictures and 32 captions."""
    report = offline_report(checkpoint, gallery, [1_000], ABOUT)

    for name, item_count in ((TEXT, 16), (IMAGE, 32)):
        be, ce = report.ranking(name, BE), report.ranking(name, f"{BE} + CE 1000")
        assert be.query_seconds is not None
        assert ce.query_seconds is not None
        parts = report.seconds[name]
        pair_seconds = parts["match"] / parts["pair_count"]
        assert ce.query_seconds - be.query_seconds == pytest.approx(item_count * pair_seconds)


def test_all_pairs_are_read_once(checkpoint: Checkpoint, gallery: Gallery) -> None:
    """Sixteen captions ask for sixteen pictures, eight pictures for 32 captions.

    Of these pairs the sixteen captions' with the eight pictures are in both.
    """
    *_, every_pair = evaluation_times(offline_report(checkpoint, gallery, [4], ABOUT))

    assert every_pair.order_by == EVERY_PAIR
    assert every_pair.pair_count == 16 * 16 + 8 * 32 - 16 * 8


def test_image_tokens_of_two_models_count_twice(
    tmp_path: Path, checkpoint: Checkpoint, gallery: Gallery, records: list[Record]
) -> None:
    """A cross-encoder with an image backbone of its own reads every picture again."""
    other = untrained(tmp_path, records, seed=1)

    alike = offline_report(checkpoint, gallery, [4], ABOUT, retriever=checkpoint)
    unlike = offline_report(checkpoint, gallery, [4], ABOUT, retriever=other)

    assert [parts["match_tokens"] for parts in alike.seconds.values()] == [0.0, 0.0]
    tokens = unlike.seconds[IMAGE]["match_tokens"]
    assert tokens > 0
    assert query_seconds_of_reading(unlike, IMAGE) == pytest.approx(tokens / 16)
    assert query_seconds_of_reading(unlike, TEXT) == pytest.approx(0)


def query_seconds_of_reading(report: Report, direction: str) -> float:
    """Returns what a query with four pairs takes over one without, less those pairs."""
    be, ce = (report.ranking(direction, name).query_seconds for name in (BE, f"{BE} + CE 4"))
    assert be is not None
    assert ce is not None
    parts = report.seconds[direction]
    return ce - be - 4 * parts["match"] / parts["pair_count"]


def test_a_duplicate_of_a_distractor_is_found_half_of_the_time(
    checkpoint: Checkpoint, records: list[Record]
) -> None:
    """Every caption of 16 scenes has 7 doubles behind it, which the model cannot tell apart.

    So an eighth of the pictures can be expected to find their own first, however good the model;
    were records that ask before all others, all would that find any of the eight.
    """
    doubles = [copy_of(record, number) for record in records for number in range(7)]
    gallery = make_gallery(records, ["en"], distractors=doubles)

    report = offline_report(checkpoint, gallery, [4], ABOUT)

    ranks = np.array(report.ranking(IMAGE, BE).ranks, float)
    # From 1 to 8 within its own eight, 4.5 in the mean.
    places = (ranks - 1) % 8 + 1
    assert 2.5 < places.mean() < 6.5
    assert report.tied_counts == {TEXT: 16, IMAGE: 16}
    assert "another item: text→image 16, image→text 16" in report_markdown(report)


def test_equal_contents_are_read_once(
    checkpoint: Checkpoint, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight pictures and captions, each three times: eight rows of each go through the model.

    And of every query's 24 pairs eight, once for both directions; where the CE's logits are equal,
    the BE's order stays. Rows of two batches may differ in the last bit or not, as the CPU and its
    threads have it.
    """
    doubles = [copy_of(record, number) for record in records[:8] for number in range(2)]
    gallery = make_gallery(records[:8], ["en"], distractors=doubles)
    model, row_counts = checkpoint.model, {"texts": 0, "images": 0, "pairs": 0}
    embed_texts, embed_images = model.embed_texts, model.embed_images
    match_logits = model.match_logits

    def count_texts(ids: Tensor, mask: Tensor) -> Tensor:
        row_counts["texts"] += len(ids)
        return embed_texts(ids, mask)

    def count_images(tokens: Tensor, cls_id: int, mask: Tensor) -> Tensor:
        row_counts["images"] += len(tokens)
        return embed_images(tokens, cls_id, mask)

    def count_pairs(ids: Tensor, *others: Tensor) -> Tensor:
        row_counts["pairs"] += len(ids)
        return match_logits(ids, *others)

    monkeypatch.setattr(model, "embed_texts", count_texts)
    monkeypatch.setattr(model, "embed_images", count_images)
    monkeypatch.setattr(model, "match_logits", count_pairs)
    report = offline_report(checkpoint, gallery, [24], ABOUT)

    assert row_counts == {"texts": 8, "images": 8, "pairs": 8 * 8}
    assert report.tied_counts == {TEXT: 8, IMAGE: 8}
    assert [parts["pair_count"] for parts in report.seconds.values()] == [8 * 24, 8 * 24]
    for direction in (TEXT, IMAGE):
        be, ce = (report.ranking(direction, name).ranks for name in (BE, f"{BE} + CE 24"))
        # In its own three contents the answer has the same place for either.
        assert [(rank - 1) % 3 for rank in ce if rank] == [(rank - 1) % 3 for rank in be if rank]


def test_equal_pairs_are_timed_as_if_all_were_read(
    checkpoint: Checkpoint, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances a second a pair: a pair's cost is not that of the few."""
    doubles = [copy_of(record, number) for record in records[:8] for number in range(2)]
    gallery = make_gallery(records[:8], ["en"], distractors=doubles)
    match_logits, read = checkpoint.model.match_logits, [0.0]

    def count_pairs(ids: Tensor, *others: Tensor) -> Tensor:
        read[0] += len(ids)
        return match_logits(ids, *others)

    monkeypatch.setattr(checkpoint.model, "match_logits", count_pairs)
    monkeypatch.setattr(offline, "time", SimpleNamespace(monotonic=lambda: read[0]))
    report = offline_report(checkpoint, gallery, [24], ABOUT)

    assert read == [8 * 8]
    assert [parts["match"] for parts in report.seconds.values()] == [8 * 24, 8 * 24]


def copy_of(record: Record, number: int) -> Record:
    """Returns another record of the same picture and words."""
    name = f"{record.record_id}-copy-{number}"
    captions = tuple(
        Caption(f"{name}-{place}", caption.text, caption.language)
        for place, caption in enumerate(record.captions)
    )
    return replace(record, record_id=name, family=name, captions=captions)
