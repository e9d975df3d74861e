"""Nouns: complete, distinct, and counted as four languages count."""

from collections import Counter

from tandem.corpus.emoji import HELD_OUT_STYLE, open_drawings
from tandem.corpus.scenes.nouns import LANGUAGES, Language, Noun, load_nouns, nouns_of

GENDERS: dict[Language, set[str]] = {
    "en": {""},
    "de": {"m", "f", "n"},
    "fr": {"m", "f"},
    "cs": {"m", "f", "n"},
}


def test_every_noun_has_every_name() -> None:
    """No form is empty or padded, in any language, and each gender has a numeral for one."""
    for noun in load_nouns():
        assert set(noun.names) == set(LANGUAGES)
        for language, name in noun.names.items():
            assert name.gender in GENDERS[language], noun
            for form in (name.one, name.many):
                assert form, noun
                assert form == " ".join(form.split()), noun


def test_every_noun_is_drawn_in_its_requested_styles() -> None:
    """Train can choose between styles; test_style finds every train noun in the held-out one."""
    drawings = open_drawings()

    for noun in load_nouns():
        styles = {style for style in drawings.styles if drawings.has(noun.codepoints, style)}
        assert len(styles - {HELD_OUT_STYLE}) >= 2, noun
        assert noun.role == "held_out" or HELD_OUT_STYLE in styles, noun


def test_held_out_nouns_are_concepts_unseen_in_training() -> None:
    """Roles agree with the emoji corpus' splits, so that one model may train on both."""
    concepts = open_drawings().concepts

    assert all(concepts[noun.codepoints].split == "train" for noun in nouns_of("train"))
    assert all(concepts[noun.codepoints].split != "train" for noun in nouns_of("held_out"))


def test_no_two_nouns_share_a_name() -> None:
    """Neither form of a noun reads as another noun's, whatever the case of its letters."""
    forms = Counter(
        (language, form.lower())
        for language in LANGUAGES
        for noun in load_nouns()
        for form in {noun.names[language].one, noun.names[language].many}
    )

    assert [form for form, count in forms.items() if count > 1] == []


def test_counted() -> None:
    """Numerals and plurals are those of a grammar book."""
    phrases: dict[tuple[str, Language], tuple[str, ...]] = {
        ("dog", "en"): ("one dog", "two dogs", "three dogs", "four dogs"),
        ("cat", "de"): ("eine Katze", "zwei Katzen", "drei Katzen", "vier Katzen"),
        ("cow", "fr"): ("une vache", "deux vaches", "trois vaches", "quatre vaches"),
        # Czech two agrees with the gender: dva for m, dvě for f and n; three and four do not.
        ("dog", "cs"): ("jeden pes", "dva psi", "tři psi", "čtyři psi"),
        ("cat", "cs"): ("jedna kočka", "dvě kočky", "tři kočky", "čtyři kočky"),
    }

    for (name, language), counted in phrases.items():
        noun = _named(name)
        assert tuple(noun.counted(n, language) for n in range(1, 5)) == counted


def _named(name: str) -> Noun:
    [noun] = [noun for noun in load_nouns() if noun.names["en"].one == name]
    return noun
