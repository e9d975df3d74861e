"""Makes tandem/corpus/drawings from the raw emoji dictionary.

    python -m tandem.corpus.pack_drawings RAW_DIR

RAW_DIR holds `dataset.json` (Karpathy layout with concept, char, category and style) and `images/`.
The same input gives the same bytes. CREDITS.md and LICENSES are written by hand and not touched.
"""

import argparse
import gzip
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.corpus.scenes.nouns import Role, load_nouns

FORMAT_VERSION = 1

# The oldest time that a zip can hold: the real time would change the bytes of every rebuild.
_MEMBER_TIME = (1980, 1, 1, 0, 0, 0)


def pack_drawings(raw: Path, folder: Path, roles: Mapping[str, Role]) -> None:
    """Writes one zip per style and concepts.json.gz into `folder`, overwriting what is there.

    `roles` gives the role of some code points in scenes: "train" forces a concept into split train,
    "held_out" forces a concept of train into test. Otherwise one corpus would train on what another
    is tested with.

    Raises ValueError if two drawings disagree about their concept, or `roles` names no drawing.
    """
    images: list[dict[str, Any]] = json.loads((raw / "dataset.json").read_bytes())["images"]
    concepts = _concepts(images)
    if unknown := sorted(roles.keys() - concepts.keys()):
        raise ValueError(f"roles name concepts without a drawing: {', '.join(unknown)}")
    for codepoints, role in roles.items():
        concepts[codepoints]["split"] = _split(concepts[codepoints]["split"], role)
    folder.mkdir(parents=True, exist_ok=True)
    for style in sorted({image["style"] for image in images}):
        members = {
            f"{image['concept']}.webp": raw / "images" / image["filename"]
            for image in images
            if image["style"] == style
        }
        _write_zip(folder / f"{style}.zip", members)
    document = {
        "format_version": FORMAT_VERSION,
        "concepts": [concepts[codepoints] for codepoints in sorted(concepts)],
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (folder / "concepts.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _concepts(images: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns each concept's fields, by code points."""
    concepts: dict[str, dict[str, Any]] = {}
    for image in images:
        concept = {
            "codepoints": image["concept"],
            "char": image["char"],
            "category": image["category"],
            "split": _concept_split(image["split"]),
            "names": {s["lang"]: s["raw"] for s in image["sentences"] if s["kind"] == "name"},
            "keywords": {
                s["lang"]: s["raw"].split(", ")
                for s in image["sentences"]
                if s["kind"] == "keywords"
            },
        }
        if concepts.setdefault(image["concept"], concept) != concept:
            raise ValueError(
                f"the drawings of {image['concept']} disagree; see {image['filename']}"
            )
    return concepts


def _concept_split(drawing_split: str) -> str:
    """Returns the split of a drawing's concept, which does not depend on the style."""
    return {"test_style": "train", "val_style": "val"}.get(drawing_split, drawing_split)


def _split(raw_split: str, role: Role) -> str:
    if role == "train":
        return "train"
    return "test" if raw_split == "train" else raw_split


def _write_zip(path: Path, members: Mapping[str, Path]) -> None:
    # Stored, because WebP does not compress; with fixed attributes, so that bytes are portable.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _MEMBER_TIME)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, members[name].read_bytes())


def main() -> None:
    """Packs RAW_DIR into this package's drawings folder, or the one given."""
    parser = argparse.ArgumentParser(prog="python -m tandem.corpus.pack_drawings")
    parser.add_argument(
        "raw", metavar="RAW_DIR", type=Path, help="folder of dataset.json and images/"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("drawings"))
    arguments = parser.parse_args()
    roles = {noun.codepoints: noun.role for noun in load_nouns()}
    pack_drawings(arguments.raw, arguments.out, roles)


if __name__ == "__main__":
    main()
