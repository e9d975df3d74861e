"""Packing is reproducible, and gives each concept the split that the other corpora allow."""

import json
from pathlib import Path

import pytest

from tandem.corpus.emoji import Drawings
from tandem.corpus.pack_drawings import pack_drawings


def a_raw_dictionary(folder: Path) -> Path:
    """Makes a raw dictionary of two concepts, the second drawn in two styles."""
    drawings = [
        ("1f415", "noto", "test"),
        ("1f408", "noto", "train"),
        ("1f408", "fluent-3d", "test_style"),
    ]
    (folder / "images").mkdir(parents=True)
    images = []
    for codepoints, style, split in drawings:
        filename = f"{style}_{codepoints}.webp"
        (folder / "images" / filename).write_bytes(filename.encode())
        sentences = [
            {"raw": f"name of {codepoints}", "lang": "en", "kind": "name"},
            {"raw": "pet, animal", "lang": "en", "kind": "keywords"},
        ]
        concept = {"concept": codepoints, "char": chr(int(codepoints, 16)), "category": "Animals"}
        image = {"filename": filename, "split": split, "style": style, "sentences": sentences}
        images.append(concept | image)
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    return folder


def test_packing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """A rebuild from the same drawings shows no difference to git."""
    raw = a_raw_dictionary(tmp_path / "raw")

    for name in ("one", "two"):
        pack_drawings(raw, tmp_path / name, {})

    written = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert written == ["concepts.json.gz", "fluent-3d.zip", "noto.zip"]
    for name in written:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_packing_gives_each_noun_the_split_of_its_role(tmp_path: Path) -> None:
    """A noun of the scenes takes its concept along, in either direction."""
    raw = a_raw_dictionary(tmp_path / "raw")

    pack_drawings(raw, tmp_path / "plain", {})
    pack_drawings(raw, tmp_path / "moved", {"1f415": "train", "1f408": "held_out"})

    plain, moved = Drawings(tmp_path / "plain").concepts, Drawings(tmp_path / "moved").concepts
    assert {code: concept.split for code, concept in plain.items()} == {
        "1f408": "train",
        "1f415": "test",
    }
    assert {code: concept.split for code, concept in moved.items()} == {
        "1f408": "test",
        "1f415": "train",
    }
    assert moved["1f408"].keywords == {"en": ("pet", "animal")}


def test_packing_refuses_a_role_without_a_drawing(tmp_path: Path) -> None:
    """A mistyped code point in nouns.tsv stops the build."""
    with pytest.raises(ValueError, match="roles name concepts without a drawing: 1f999"):
        pack_drawings(a_raw_dictionary(tmp_path / "raw"), tmp_path / "out", {"1f999": "train"})
