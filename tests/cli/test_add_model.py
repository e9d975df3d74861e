"""`tandem models add` of published models, as typed: what it says, writes and refuses."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.cli.serve import up
from tandem.cli.serve.served_model import served_manifest
from tandem.model_io.repository.manifest import manifest_file, model_file, read_manifest
from tandem.model_io.repository.model_repository import added_manifest_of
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.served_functions import TokenSource
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.stack.start_refused import StartRefused
from tests.support.modeling.published_cross_encoders import published_blip
from tests.support.modeling.published_formats import (
    published_open_clip_xlm_roberta,
    published_text_tower,
)
from tests.support.modeling.published_pairs import (
    change_json,
    published_clip,
    published_metaclip_2,
    published_siglip,
)
from tests.support.modeling.region_checkpoints import oscar_weights, write_oscar
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint
from tests.support.zoo.tiny_zoo import save_tiny_zoo

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("add_model")

SHIPPED_SHA256 = CheckpointFiles.read(default_checkpoint()).weights_sha256

Folder = Callable[[str], Path]
_MAKERS: dict[str, Callable[[Path], object]] = {
    "blip": published_blip,
    "clip": published_clip,
    "metaclip_2": published_metaclip_2,
    "siglip": published_siglip,
    "open_clip": published_open_clip_xlm_roberta,
    "text tower": published_text_tower,
    "checkpoint": save_tiny_checkpoint,
    "zoo of regions": lambda folder: save_tiny_zoo(
        folder, "camera", image_source="regions", region_count=6
    ),
    "oscar": lambda folder: write_oscar(folder, oscar_weights()),
}


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Returns the folder of a model; tests must not change it."""
    made: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("models") / name.replace(" ", "_")
            made[name].mkdir()
            _MAKERS[name](made[name])
        return made[name]

    return folder_of


@pytest.fixture(name="added", scope="module")
def _added(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the CLIP."""
    repository = tmp_path_factory.mktemp("added") / "repository"
    status, output = add(folder("clip"), repository)
    assert status == 0, output
    return repository


def add(model: Path | str, repository: Path, *options: str) -> tuple[int, str]:
    """Returns the exit status and what was printed on one line; precision is fp32."""
    return run(
        "add", str(model), "--model-repository", str(repository), "--precision", "fp32", *options
    )


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["models", *arguments])
    return result.exit_code, " ".join(f"{result.output} {result.exception or ''}".split())


def test_an_added_model_is_listed_verified_and_removed(added: Path, tmp_path: Path) -> None:
    repository = shutil.copytree(added, tmp_path / "repository")
    at = ("--model-repository", str(repository))

    assert "text_encoder clip fp32" in run("list", *at)[1]
    assert "is whole and answers" in run("verify", *at)[1]
    assert run("remove", "--yes", *at)[0] == 0
    assert added_manifest_of(repository, SHIPPED_SHA256) is None
    assert not model_file(repository, "text_encoder").exists()


def test_a_model_replaces_the_previous_one(folder: Folder, added: Path, tmp_path: Path) -> None:
    repository = shutil.copytree(added, tmp_path / "repository")
    for name, family in (("siglip", "siglip"), ("checkpoint", "joint"), ("clip", "clip")):
        status, output = add(folder(name), repository)
        assert status == 0, output
        manifest = read_manifest(repository)
        assert manifest.family == family
        assert {path.parents[1].name for path in repository.glob("*/1/model.pt")} == set(
            manifest.models
        )
        manifest.verify(repository)
        assert added_manifest_of(repository, SHIPPED_SHA256) == manifest
    assert manifest.fingerprint == read_manifest(added).fingerprint


def test_a_reranker_of_another_family_is_added_with_it(folder: Folder, tmp_path: Path) -> None:
    options = ("--cross-encoder", str(folder("blip")), "--tokens", "recomputed")
    status, output = add(folder("siglip"), tmp_path / "new", *options)

    manifest = read_manifest(tmp_path / "new")
    assert status == 0, output
    assert manifest.family == "siglip+blip"
    assert manifest.tokens is TokenSource.RECOMPUTED
    assert "blip: blip (BlipForImageTextRetrieval)" in output
    assert "computed again when it is reranked" in output


def test_a_text_tower_is_added_with_the_image_tower_it_was_trained_for(
    folder: Folder, tmp_path: Path
) -> None:
    status, output = add(
        folder("text tower"), tmp_path / "new", "--image-encoder", str(folder("clip"))
    )

    assert status == 0, output
    assert "only their number of dimensions is checked" in output
    assert read_manifest(tmp_path / "new").licence == "apache-2.0 and mit"


def test_a_licence_without_commercial_use_is_warned_of(folder: Folder, tmp_path: Path) -> None:
    status, output = add(folder("metaclip_2"), tmp_path / "new")

    assert status == 0, output
    assert "cc-by-nc-4.0, does not allow commercial use" in output


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("siglip", ("--tokens", "pooled"), "--tokens: only for a model that reranks"),
        ("siglip", ("--cross-encoder", "CLIP"), "scores no pairs"),
        ("checkpoint", ("--cross-encoder", "CLIP"), "--cross-encoder: only for a published model"),
    ],
)
def test_options_that_do_not_fit_are_refused_and_nothing_is_written(
    folder: Folder, tmp_path: Path, name: str, options: tuple[str, ...], told: str
) -> None:
    given = [str(folder("clip")) if each == "CLIP" else each for each in options]
    status, output = add(folder(name), tmp_path / "new", *given)

    assert status == 1
    assert told in output
    assert not (tmp_path / "new").exists()


def test_a_broken_model_leaves_the_one_that_is_there(
    folder: Folder, added: Path, tmp_path: Path
) -> None:
    repository = shutil.copytree(added, tmp_path / "repository")
    broken = shutil.copytree(folder("siglip"), tmp_path / "broken")
    change_json(broken / "config.json", model_type="florence2")

    status, output = add(broken, repository)

    assert status == 1
    assert 'model_type "florence2", which is not a supported family' in output
    assert added_manifest_of(repository, SHIPPED_SHA256) == read_manifest(added)


def test_a_name_that_was_not_downloaded_is_refused_offline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))

    status, output = add("someone/some-clip", tmp_path / "new", "--revision", "a1b2c3")

    assert status == 1
    assert "someone/some-clip is neither a folder nor a checkpoint that the hub gives" in output


def test_up_serves_the_added_model(folder: Folder, added: Path, tmp_path: Path) -> None:
    repository = shutil.copytree(added, tmp_path / "repository")

    assert served_manifest(None, repository, None) == read_manifest(added)
    with pytest.raises(StartRefused, match="add it again in bf16"):
        served_manifest(None, repository, Precision.BF16)
    chosen = served_manifest(folder("checkpoint"), repository, Precision.FP32)
    assert chosen.family == "joint"


def test_up_serves_the_checkpoint_that_was_added(folder: Folder, tmp_path: Path) -> None:
    assert add(folder("checkpoint"), tmp_path)[0] == 0
    manifest = read_manifest(tmp_path)

    assert served_manifest(None, tmp_path, None) == manifest == read_manifest(tmp_path)
    assert not up._console_note(manifest)
    with pytest.raises(StartRefused, match="add it again in bf16"):
        served_manifest(None, tmp_path, Precision.BF16)

    shipped = replace(manifest, checkpoint={"weights_sha256": SHIPPED_SHA256})
    shipped.write(manifest_file(tmp_path))
    assert added_manifest_of(tmp_path, SHIPPED_SHA256) is None


@pytest.mark.parametrize("is_there", [True])
def test_up_never_serves_the_demos_model_in_place_of_another(
    tmp_path: Path, is_there: bool
) -> None:
    """A repository that was named and has no model: a typing error, or an add that failed."""
    repository = tmp_path / "photo_model"
    if is_there:
        repository.mkdir()

    result = CliRunner().invoke(
        app, ["up", "--free-ports", "--one-process", "--model-repository", str(repository)]
    )

    assert isinstance(result.exception, StartRefused)
    said = str(result.exception)
    assert f"{repository} has no model" in said
    assert f"tandem models add MODEL --model-repository {repository}" in said
    assert list(tmp_path.rglob("*.pt")) == []


def test_up_refuses_a_model_that_reads_pictures_in_another_way(added: Path, tmp_path: Path) -> None:
    """Under the same fingerprint, its queries would be compared with items of the other way."""
    repository = shutil.copytree(added, tmp_path / "repository")
    text = manifest_file(repository).read_text()
    manifest_file(repository).write_text(text.replace('"filter": "bicubic"', '"filter": "box"'))
    assert read_manifest(repository) != read_manifest(added)

    with pytest.raises(ValueError, match=r"manifest\.json was changed: its rules"):
        served_manifest(None, repository, None)


def test_up_names_a_file_of_the_added_model_that_is_damaged(added: Path, tmp_path: Path) -> None:
    repository = shutil.copytree(added, tmp_path / "repository")
    model_file(repository, "text_encoder").write_bytes(b"")

    with pytest.raises(ValueError, match=r"text_encoder/1/model\.pt is not the file"):
        served_manifest(None, repository, None)
