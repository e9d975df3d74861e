"""Galleries: whole, in turn through the languages, and with one right answer a query."""

from collections import Counter
from dataclasses import replace

import pytest

from tandem.contract.content import Modality
from tandem.contract.identifiers import check_item_id
from tandem.corpus.records import Caption, ImageSource, Record
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.gallery import (
    DIRECTIONS,
    EvaluationQuery,
    Gallery,
    folds,
    languages_of,
    make_gallery,
)

LANGUAGES = ("en", "de", "fr", "cs")


@pytest.fixture(name="gallery", scope="module")
def _gallery() -> Gallery:
    return make_gallery(scene_records("test", 1, 32), LANGUAGES)


def test_every_record_has_one_own_caption(gallery: Gallery) -> None:
    assert len(gallery.pairs) == 32
    for record, caption in gallery.pairs:
        of_language = [each for each in record.captions if each.language == caption.language]
        assert caption == of_language[0]


def test_items_are_all_pictures_and_then_all_captions(gallery: Gallery) -> None:
    """Each under an id that tells which it is; no id stands twice."""
    items = list(gallery.items())

    assert len(items) == len({item_id for item_id, _ in items}) == 64
    for (record, caption), (image_id, image), (text_id, text) in zip(
        gallery.pairs, items[:32], items[32:], strict=True
    ):
        assert (named(image_id), image) == (record.record_id, record.image.read())
        assert (named(text_id), text) == (caption.caption_id, caption.text)


@pytest.mark.parametrize("target", Modality)
def test_ids_and_ties_do_not_reveal_the_query(target: Modality) -> None:
    """Of as many records that ask as distractors, each stands first about as often.

    By the records' names all that ask would: "a…" before "b…".
    """
    asking = [_record(f"a{number:03}", f"a{number}") for number in range(200)]
    behind = [_record(f"b{number:03}", f"b{number}") for number in range(200)]

    gallery = make_gallery(asking, ["en"], distractors=behind)

    order = gallery.tie_order(target)
    assert sorted(order) == list(range(400))
    # Of 200 draws out of 400, half of whom ask: six deviations of 5.
    assert 70 < sum(gallery.asks(number) for number in order[:200]) < 130
    ids = gallery.item_ids[target]
    assert [ids[number] for number in order] == sorted(ids)  # as an index has them


@pytest.mark.parametrize("target", DIRECTIONS.values())
def test_every_picture_with_the_caption_may_answer(target: Modality) -> None:
    """Two drawings of dogs answer each other's captions, and so does a distractor; a cat does not.

    Then nothing keeps a reader without fault from the first place.
    """
    *asking, behind = [
        replace(_record(name, name), captions=(Caption(f"{name}-0", text, "en"),))
        for name, text in (("a", "dogs"), ("b", "Dogs"), ("c", "cat"), ("d", "dogs"))
    ]
    gallery = make_gallery(asking, ["en"], distractors=[behind], any_match=True)

    assert gallery.answers(target) == [{0, 1, 3}, {0, 1, 3}, {2}]
    assert gallery.best_recall_at_1(target) == 100
    assert gallery.only({0, 2, 3}).answers(target) == [{0, 2}, {1}]
    own = replace(gallery, any_match=False)
    assert own.answers(target) == [{0}, {1}, {2}]
    assert own.best_recall_at_1(target) == pytest.approx(100 * (1 / 3 + 1 / 3 + 1) / 3)


@pytest.mark.parametrize("name", ["é" * 124, "\ud800"])
def test_any_name_makes_an_id_that_a_server_takes(name: str) -> None:
    longest = _record("a" * 247, "b")
    gallery = make_gallery([_record(name, "a"), _record(f"{name}2", "c"), longest], ["en"])

    item_ids = [item_id for ids in gallery.item_ids.values() for item_id in ids]
    assert all(check_item_id(each) for each in item_ids)
    assert len(set(item_ids)) == 6
    # Positive control: the longest that fits is there to be read.
    assert named(gallery.item_ids[Modality.IMAGE][2]) == longest.record_id


def test_a_distractor_may_have_the_name_of_a_query() -> None:
    """Two corpora, or two seeds of one, name theirs alike; each is an item of its own."""
    gallery = make_gallery([_record("a", "a")], ["en"], distractors=[_record("a", "a")])

    assert len({item_id for item_id, _ in gallery.items()}) == 4
    [query] = gallery.queries(Modality.IMAGE)
    assert query.grades == {gallery.item_ids[Modality.IMAGE][0]: 1}
    # Its family, which has the other's name, takes a turn of its own.
    two = make_gallery([_record("a", "a")], ["en", "de"], distractors=[_record("a", "a")])
    assert [caption.language for _, caption in two.pairs] == ["en", "de"]


def test_some_queries_alone_read_no_other_picture() -> None:
    class NeverRead(ImageSource):
        def read(self) -> bytes:
            raise AssertionError("read")

    records = [_record(name, name) for name in "abc"]
    records[1] = replace(records[1], image=NeverRead())
    gallery = make_gallery(records, ["en"])

    asked = list(gallery.queries(Modality.TEXT, [2, 0]))

    assert [answers(each) for each in asked] == [{"c-en-0"}, {"a-en-0"}]


def test_queries_ask_one_side_for_the_other(gallery: Gallery) -> None:
    contents = dict(gallery.items())

    for (record, caption), by_text, by_image, *languages in zip(
        gallery.pairs,
        gallery.queries(Modality.IMAGE),
        gallery.queries(Modality.TEXT),
        gallery.languages(Modality.IMAGE),
        gallery.languages(Modality.TEXT),
        strict=True,
    ):
        assert (by_text.query, by_text.target_modality) == (caption.text, Modality.IMAGE)
        assert [contents[each] for each in by_text.grades] == [record.image.read()]
        assert (by_image.query, by_image.target_modality) == (record.image.read(), Modality.TEXT)
        assert [contents[each] for each in by_image.grades] == [caption.text]
        assert languages == [caption.language, caption.language]


def test_several_captions_all_answer_and_all_ask() -> None:
    """Five captions per picture are five right answers, as in Geigle et al. 2022."""
    records = [_record("a", "a", 3), _record("b", "b", 1)]

    gallery = make_gallery(records, ["en"], captions_per_picture=2)

    assert [caption.caption_id for _, caption in gallery.pairs] == ["a-en-0", "a-en-1", "b-en-0"]
    assert gallery.answers(Modality.IMAGE) == [{0}, {0}, {1}]
    assert gallery.answers(Modality.TEXT) == [{0, 1}, {2}]
    by_image = list(gallery.queries(Modality.TEXT))
    assert [answers(each) for each in by_image] == [{"a-en-0", "a-en-1"}, {"b-en-0"}]
    assert len(list(gallery.queries(Modality.IMAGE))) == 3


def test_an_item_with_the_same_caption_matches_but_is_not_an_answer() -> None:
    """In letters of any case, and by captions that the gallery does not ask with."""
    said = [["two dogs", "a pair"], ["a cat"], ["a tabby", "TWO DOGS"]]
    records = [
        replace(
            _record(name, name),
            captions=tuple(
                Caption(f"{name}-{number}", text, "en") for number, text in enumerate(texts)
            ),
        )
        for name, texts in zip("abc", said, strict=True)
    ]

    gallery = make_gallery(records, ["en"])

    assert gallery.matches(Modality.IMAGE) == [{0, 2}, {1}, {2}]
    assert gallery.matches(Modality.TEXT) == [{0}, {1}, {0, 2}]
    for target in Modality:
        assert gallery.answers(target) == [{0}, {1}, {2}]


def test_a_flawless_model_finds_an_answer_as_often_as_chance_among_its_matches() -> None:
    said = [["two dogs", "a pair"], ["a cat"], ["two dogs"], ["Two dogs"]]
    records = [
        replace(
            _record(name, name),
            captions=tuple(Caption(f"{name}-{text}", text, "en") for text in texts),
        )
        for name, texts in zip("abcd", said, strict=True)
    ]

    alone = make_gallery(records[:2], ["en"], captions_per_picture=2)
    among = make_gallery(records[:2], ["en"], captions_per_picture=2, distractors=records[2:])

    assert [alone.best_recall_at_1(target) for target in Modality] == [100, 100]
    # "two dogs" is true of three pictures, "a pair" of one, "a cat" of one.
    assert among.best_recall_at_1(Modality.IMAGE) == pytest.approx(100 * (1 / 3 + 1 + 1) / 3)
    # The dogs' two captions are both answers; two distractors say what one of them says.
    assert among.best_recall_at_1(Modality.TEXT) == pytest.approx(100 * (2 / 4 + 1) / 2)
    assert among.best_recall_at_1(Modality.IMAGE, [0, 1]) == pytest.approx(100 * (1 / 3 + 1) / 2)


def test_distractors_are_searched_and_never_ask() -> None:
    records, others = [_record("a", "a"), _record("b", "b")], [_record("c", "c")]

    gallery = make_gallery(records, ["en"], distractors=others)

    assert [named(item_id) for item_id, _ in gallery.items()] == ["a", "b", "c"] + [
        f"{name}-en-0" for name in "abc"
    ]
    for target in Modality:
        assert len(list(gallery.queries(target))) == len(gallery.languages(target)) == 2
        assert gallery.answers(target) == [{0}, {1}]


def test_languages_are_those_that_every_record_has() -> None:
    """In the first one's order; none in common is refused, not guessed."""
    both, german = _record("a", "a"), _record("b", "b")
    german = Record("b", german.captions[1:], "test", "b", _NoImage())

    assert languages_of([Record("none", (), "test", "n", _NoImage()), both]) == ["en", "de"]
    assert languages_of([both, german]) == ["de"]
    with pytest.raises(ValueError, match="no language has a caption for every picture"):
        languages_of([german, Record("c", both.captions[:1], "test", "c", _NoImage())])


def test_folds_are_galleries_of_one_size() -> None:
    """In the records' order; what does not divide is refused, or a fold would be easier."""
    records = [_record(name, name) for name in "abcdef"]

    assert [[each.record_id for each in fold] for fold in folds(records, 3)] == [
        ["a", "b"],
        ["c", "d"],
        ["e", "f"],
    ]
    with pytest.raises(
        ValueError, match=r"6 records do not divide into 4 folds; .*or 4 records with --co"
    ):
        folds(records, 4)


def test_folds_cut_no_family() -> None:
    """Half a family would be easier to tell apart than it claims."""
    records = [_record(f"{family}{n}", family) for family in "abc" for n in range(2)]

    assert [len(fold) for fold in folds(records, 3)] == [2, 2, 2]
    with pytest.raises(ValueError, match="folds of 3 records cut the family 'b' in two"):
        folds(records, 2)


def test_a_family_keeps_its_language_among_mixed_records() -> None:
    first, second = "ab"
    records = [_record(f"{family}{n}", family) for n in range(2) for family in (first, second)]

    gallery = make_gallery(records, ("en", "de"))

    languages = Counter((record.family, caption.language) for record, caption in gallery.pairs)
    assert languages == {("a", "en"): 2, ("b", "de"): 2}


def test_a_record_without_its_familys_language_is_refused() -> None:
    with pytest.raises(ValueError, match="a0 has no caption in 'fr'"):
        make_gallery([_record("a0", "a")], ("fr",))


def named(item_id: str) -> str:
    """Returns the name in an id, which its digest stands before."""
    return item_id.partition("-")[2]


def answers(query: EvaluationQuery) -> set[str]:
    return {named(each) for each in query.grades}


class _NoImage(ImageSource):
    def read(self) -> bytes:
        return b""


def _record(record_id: str, family: str, caption_count: int = 1) -> Record:
    captions = tuple(
        Caption(f"{record_id}-{language}-{n}", f"{record_id} in {language}, {n}", language)
        for language in ("en", "de")
        for n in range(caption_count)
    )
    return Record(record_id, captions, "test", family, _NoImage())


def test_distractors_of_two_corpora_may_have_one_name() -> None:
    """Each is an item of its own; the first is called as if it were alone."""
    alone = make_gallery([_record("a", "a")], ["en"], distractors=[_record("b", "b")])
    both = make_gallery(
        [_record("a", "a")], ["en"], distractors=[_record("b", "b"), _record("b", "b")]
    )

    for modality, ids in both.item_ids.items():
        assert ids[:2] == alone.item_ids[modality]
        assert len(set(ids)) == 3
