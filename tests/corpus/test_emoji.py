"""The packed drawings are whole, credited, and split without leaks between corpora."""

import io
import re
from collections import Counter, defaultdict
from importlib.resources import files

from PIL import Image

from tandem.corpus.emoji import HELD_OUT_STYLE, SPLITS, emoji_records, open_drawings

LANGUAGES = {"en", "de", "fr", "cs"}


def test_every_drawing_is_there() -> None:
    """The counts are those of CREDITS.md; what a caller decodes has one size and one format."""
    drawings = open_drawings()

    counts = Counter(
        style
        for style in drawings.styles
        for code in drawings.concepts
        if drawings.has(code, style)
    )

    for style in drawings.styles:
        picture = Image.open(io.BytesIO(drawings.webp_bytes("1f415", style)))
        assert (picture.format, picture.size) == ("WEBP", (128, 128))
    assert len(drawings.concepts) == 1638
    assert counts == {
        "noto": 1638,
        "twemoji": 1638,
        "fluent-3d": 1593,
        "fluent-emoji-flat": 1580,
        "noto-v1": 1203,
        "emojione": 1062,
    }


def test_concepts_are_named_in_four_languages() -> None:
    """No language is missing a name, and names are what CLDR says."""
    drawings = open_drawings()

    assert all(concept.names.keys() == LANGUAGES for concept in drawings.concepts.values())
    dog = drawings.concepts["1f415"]
    assert dict(dog.names) == {"en": "dog", "de": "Hund", "fr": "chien", "cs": "pes"}
    assert (dog.char, dog.category) == ("\N{DOG}", "Animals & Nature")
    assert "pet" in dog.keywords["en"]


def test_every_drawing_is_in_exactly_one_split() -> None:
    """Splits share no record and leave none out."""
    record_ids = Counter(record.record_id for split in SPLITS for record in emoji_records(split))

    assert len(record_ids) == 8714
    assert set(record_ids.values()) == {1}


def test_train_and_val_never_show_the_held_out_style() -> None:
    """test_style and val_style hold nothing but that style."""
    styles: dict[str, set[bool]] = defaultdict(set)
    for split in SPLITS:
        for record in emoji_records(split):
            styles[split].add(record.record_id.startswith(f"emoji-{HELD_OUT_STYLE}-"))

    assert styles == {
        "train": {False},
        "val": {False},
        "val_style": {True},
        "test": {False, True},
        "test_style": {True},
    }


def test_no_concept_is_both_trained_on_and_tested_as_unknown() -> None:
    """train, val and test share no concept; test_style has none that train lacks."""
    concepts = {split: {record.family for record in emoji_records(split)} for split in SPLITS}

    assert not concepts["train"] & (concepts["val"] | concepts["test"])
    assert not concepts["val"] & concepts["test"]
    assert concepts["test_style"] <= concepts["train"]
    assert concepts["val_style"] <= concepts["val"]


def test_a_record_has_its_concepts_names_and_keywords() -> None:
    """Captions come as name, then keywords, language after language, with ids of their own."""
    record = next(r for r in emoji_records("train") if r.record_id == "emoji-noto-1f6f3")

    assert record.family == "emoji-1f6f3"
    assert [(caption.language, caption.text) for caption in record.captions[:4]] == [
        ("en", "passenger ship"),
        ("en", "passenger, ship"),
        ("de", "Passagierschiff"),
        ("de", "Aida, Rundreise, Schiff, Seereise, Traumschiff"),
    ]
    assert record.image.read() == open_drawings().webp_bytes("1f6f3", "noto")


def test_every_style_is_credited_with_its_count_and_a_licence_that_is_there() -> None:
    """CREDITS.md is written by hand, so it is held against the data."""
    folder = files("tandem.corpus") / "drawings"
    credits_text = (folder / "CREDITS.md").read_text(encoding="utf-8")
    drawings = open_drawings()

    for style in drawings.styles:
        row = re.search(
            rf"^\| {style} \|.*\((LICENSES/\S+)\) \| ([\d,]+) \|", credits_text, re.MULTILINE
        )
        assert row, f"CREDITS.md has no row for {style}"
        assert (folder / row[1]).is_file()
        count = sum(drawings.has(codepoints, style) for codepoints in drawings.concepts)
        assert row[2] == f"{count:,}"
