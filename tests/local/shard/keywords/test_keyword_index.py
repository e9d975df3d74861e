"""Words find items by BM25, follow changes, and are never read as query syntax."""

from __future__ import annotations

import math
import unicodedata

import pytest

from tandem.contract.content import Modality
from tandem.contract.filtering.attributes import Attributes
from tandem.local.shard.keywords import keyword_index
from tandem.local.shard.keywords.item_text import ItemText, item_text
from tandem.local.shard.keywords.keyword_index import MAX_WORD_COUNT, KeywordIndex
from tandem.local.shard.keywords.word_index import WordIndex
from tandem.stages.shard_answer import WordHit
from tests.support.grid import sampled

K1, B = 1.2, 0.75


def caption(item_id: str, text: str) -> ItemText:
    """Returns the text of a picture."""
    return ItemText(item_id, Modality.IMAGE, text)


def index_of(*texts: ItemText) -> KeywordIndex:
    index = KeywordIndex()
    index.put(texts)
    index.refresh()
    return index


def search(
    index: KeywordIndex, words: str, k: int = 10, modality: Modality = Modality.IMAGE
) -> list[WordHit]:
    return index.search(words, modality, k, lambda _: True)


def found(index: KeywordIndex, words: str, k: int = 10) -> list[str]:
    return [hit.item_id for hit in search(index, words, k)]


def test_scores_are_those_of_bm25_by_hand() -> None:
    """Robertson's formula with k1 = 1.2 and b = 0.75; the texts have 3, 2 and 4 words."""
    index = index_of(
        caption("cup", "a red cup"), caption("dog", "red dog"), caption("cat", "cat and red red")
    )

    def score(*terms: tuple[int, int], length: int) -> float:
        """Sums over terms of (items with the term, occurrences in this item)."""
        return sum(
            math.log(1 + (3 - items + 0.5) / (items + 0.5))
            * times
            * (K1 + 1)
            / (times + K1 * (1 - B + B * length / 3))
            for items, times in terms
        )

    hits = search(index, "red cup")

    assert [hit.item_id for hit in hits] == ["cup", "cat", "dog"]
    assert [hit.score for hit in hits] == pytest.approx(
        [score((3, 1), (1, 1), length=3), score((3, 2), length=4), score((3, 1), length=2)]
    )


def test_texts_and_pictures_are_searched_apart() -> None:
    """An item that becomes a picture is not text any more."""
    index = index_of(ItemText("a", Modality.TEXT, "red cup"), caption("b", "red"))

    assert [hit.item_id for hit in search(index, "red", modality=Modality.TEXT)] == ["a"]
    index.put([caption("a", "red")])
    index.refresh()

    assert search(index, "red", modality=Modality.TEXT) == []
    assert found(index, "red") == ["a", "b"]


def test_replaced_deleted_and_emptied_items_are_not_found() -> None:
    index = index_of(*(caption(name, "red cup") for name in "abcd"))
    assert found(index, "cup") == ["a", "b", "c", "d"]

    index.put([caption("b", "blue"), caption("c", "")])
    index.delete(["d", "unknown"])
    index.refresh()

    assert found(index, "cup") == ["a"]
    assert found(index, "blue") == ["b"]
    assert index.item_count(Modality.IMAGE) == 2


def test_equal_scores_sort_by_item_id_also_at_the_cut() -> None:
    names = [f"{number:03}" for number in range(40)]
    index = index_of(*(caption(name, "red cup") for name in reversed(names)))

    assert found(index, "red", k=3) == names[:3]


def test_a_few_items_are_searched_separately_with_the_same_scores() -> None:
    """Also those without any of the words stay out, and an id is not a word."""
    index = index_of(*[caption(f"cup-{n}", "a red cup " * (1 + n % 3)) for n in range(60)])
    index.put([caption("plain", "a blue dish")])
    index.refresh()
    among = ["cup-59", "cup-7", "plain", "missing"]

    looked_at: set[str] = set()

    def keep(item_id: str) -> bool:
        looked_at.add(item_id)
        return item_id in among

    few = index.search("red cup", Modality.IMAGE, 10, keep, among)

    assert looked_at == {"cup-59", "cup-7"}
    assert [hit.item_id for hit in few] == ["cup-59", "cup-7"]
    assert few == [hit for hit in search(index, "red cup", k=60) if hit.item_id in among]


def test_a_filter_that_keeps_nothing_has_a_bounded_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hit is fetched four times as many at a time; without the bound all 600 would be."""
    index = index_of(*[caption(f"cup-{n}", "a red cup") for n in range(600)])
    looked_at: set[str] = set()
    monkeypatch.setattr(keyword_index, "_MAX_FETCHED_COUNT", 100)

    def keep(item_id: str) -> bool:
        looked_at.add(item_id)
        return False

    hits = index.search("cup", Modality.IMAGE, 10, keep)

    assert hits == []
    assert len(looked_at) == 100


def test_dropped_hits_are_replaced_by_the_next_best() -> None:
    index = index_of(*(caption(f"{n:03}", "red" + " word" * n) for n in range(50)))
    worst = {"048", "049"}

    hits = index.search("red", Modality.IMAGE, 5, worst.__contains__)

    assert [hit.item_id for hit in hits] == ["048", "049"]


@pytest.mark.parametrize(
    "words",
    sampled(
        [
            "cup OR *",
            "text:cup",
            "cup^9",
            '"cup',
            "cup~3",
            "(cup",
            "+cup -red",
            "cup\x00",
            "[a TO cup]",
        ]
    ),
)
def test_query_syntax_is_only_words(words: str) -> None:
    """Each finds what has the word, and no error is raised."""
    index = index_of(caption("a", "red"), caption("b", "cup"), caption("c", "dog"))

    assert "b" in found(index, words)
    assert "c" not in found(index, words)


FOLDED = [
    ("İstanbul Boğazı", "istanbul"),
    (unicodedata.normalize("NFD", "Amélie"), "amelie"),
    ("amélie", unicodedata.normalize("NFD", "AMÉLIE")),
    ("ΟΔΟΣ", "οδός"),
    ("한국어", unicodedata.normalize("NFD", "한국어")),
    ("แมวสีขาว", "แมวสีขาว"),
    ("ＡＢＣ ﬁn Łódź", "abc fin lodz"),
]


def test_words_are_folded_as_unicode_folds_them() -> None:
    """Each word of the query is one of the text's, whole, however it is written."""
    index = WordIndex()

    for text, words in FOLDED:
        assert index.words_of(text)[: len(words.split())] == index.words_of(words)
        assert len(index.words_of(words)) == len(words.split())


def test_no_letter_of_any_script_differs_by_case_or_composition() -> None:
    """But the marks of scripts that write vowels by them stay."""
    index = WordIndex()
    letters = [
        each
        for each in map(chr, range(0x80, 0x10000))
        if each.isalpha() and each.lower() != each.upper()
    ]
    different = [
        each
        for each in letters
        for other in (each.lower(), each.upper(), unicodedata.normalize("NFD", each))
        if index.words_of(f"a{each}b") != index.words_of(f"a{other}b")
    ]

    assert len(letters) > 2_000
    assert different == []
    assert len(index.words_of("กา กี")) == 2


def test_only_the_first_different_words_are_searched_for() -> None:
    """A text of thousands of words costs no more than one of 64."""
    index = index_of(caption("first", "w0"), caption("last", "w4999"))
    words = " ".join(f"w{number // 2}" for number in range(10_000))

    assert found(index, words) == ["first"]
    assert found(index, f"{' '.join(['w0'] * MAX_WORD_COUNT)} w4999") == ["first", "last"]


def test_a_build_never_undoes_a_concurrent_change() -> None:
    """The scan of the store may be older than what was written since."""
    index = KeywordIndex()
    index.begin_build()
    index.put([caption("replaced", "new")])
    index.delete(["deleted"])
    assert not index.is_built

    index.put_stored(
        [caption("replaced", "old"), caption("deleted", "old"), caption("kept", "old")]
    )
    index.end_build()
    index.refresh()

    assert index.is_built
    assert found(index, "old") == ["kept"]
    assert found(index, "new") == ["replaced"]


def test_the_text_of_an_item_is_its_content_and_its_named_attributes() -> None:
    attributes: Attributes = {
        "caption": ("a cup", "eine Tasse"),
        "title": "Cup",
        "style": "noto",
        "size": 3,
    }

    assert item_text("", attributes, ("caption", "title", "size")) == "a cup\neine Tasse\nCup"
    assert item_text("red", {}, ("caption",)) == "red"
    assert item_text("", attributes, ()) == ""
