"""Of a hub's repository only the files are downloaded that are read, at the asked revision."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from tandem.modeling.published.files import published_folder

SMALL = {"config.json", "tokenizer.json", "preprocessor_config.json", "README.md"}


class Hub:
    """Stands for the hub: gives files that match the patterns, as snapshot_download does."""

    def __init__(self, cache: Path, names: set[str]) -> None:
        self.cache = cache
        self.names = names
        self.revisions: set[str | None] = set()

    def download(self, name: str, revision: str | None, allow_patterns: list[str]) -> str:
        """Writes the files into the cache."""
        self.revisions.add(revision)
        for file in self.names:
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                path = self.cache / name / file
                path.parent.mkdir(exist_ok=True, parents=True)
                path.write_bytes(b"{}")
        return str(self.cache / name)


PARTS = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
LAYER = {"2_Dense/pytorch_model.bin"}


def test_weights_are_downloaded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of_open_clip = {"open_clip_config.json", "tokenizer.json"}
    cases: list[tuple[set[str], set[str], set[str]]] = [
        (
            SMALL,
            {"model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors"},
            {"model.safetensors"},
        ),
        (SMALL, PARTS, PARTS),
        (SMALL, {"pytorch_model.bin", "flax_model.msgpack"}, {"pytorch_model.bin"}),
        (SMALL, {"model.safetensors", "pytorch_model.bin"} | LAYER, {"model.safetensors"} | LAYER),
        (SMALL, {"pytorch_model.bin"} | LAYER, {"pytorch_model.bin"} | LAYER),
        (SMALL, {"0_CLIPModel/pytorch_model.bin"}, {"0_CLIPModel/pytorch_model.bin"}),
        (
            of_open_clip,
            {"open_clip_model.safetensors", "open_clip_pytorch_model.bin"},
            {"open_clip_model.safetensors"},
        ),
        (of_open_clip, {"open_clip_pytorch_model.bin"}, {"open_clip_pytorch_model.bin"}),
    ]
    for number, (small, weights, downloaded) in enumerate(cases):
        (folder := tmp_path / str(number)).mkdir()
        assert _downloaded(monkeypatch, folder, small | weights) == small | downloaded


def _downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: set[str]) -> set[str]:
    hub = Hub(tmp_path / "cache", names)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.download)
    folder = published_folder("someone/a-model", "a1b2c3")
    assert hub.revisions == {"a1b2c3"}
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
