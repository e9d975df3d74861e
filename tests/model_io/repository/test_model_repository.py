"""A model repository: what is listed as ours, and that no more than ours is deleted."""

import json
import shutil
from pathlib import Path

import pytest

from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.model_repository import our_manifest, remove_model, stored_models


@pytest.fixture
def repository(tmp_path: Path, tiny_repository: Path) -> Path:
    """A copy that may be spoilt."""
    return shutil.copytree(tiny_repository, tmp_path / "model_repository")


def files_of(folder: Path) -> set[str]:
    """Returns every file under the folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def add_a_model_of_others(repository: Path) -> None:
    """Puts a model there that the manifest does not tell of."""
    (repository / "theirs" / "1").mkdir(parents=True)
    (repository / "theirs" / "config.pbtxt").write_text('name: "theirs"')
    (repository / "theirs" / "1" / "model.pt").write_bytes(b"12345")


def test_both_parts_are_listed_with_their_sizes(repository: Path, tiny_manifest: Manifest) -> None:
    models = stored_models(repository)

    assert [model.name for model in models] == ["image_backbone", "joint_encoder"]
    for model in models:
        assert model.manifest == tiny_manifest
        assert model.file_bytes == (repository / model.name / "1/model.pt").stat().st_size
        assert model.is_config_ours


def test_an_edited_config_is_distinguished_from_ours(repository: Path) -> None:
    with (repository / "joint_encoder" / "config.pbtxt").open("a") as config:
        config.write(" ")
    add_a_model_of_others(repository)

    *ours, theirs = stored_models(repository)

    assert [model.is_config_ours for model in ours] == [True, False]
    assert (theirs.name, theirs.manifest, theirs.file_bytes) == ("theirs", None, 5)


def test_a_missing_file_is_listed_without_a_size(repository: Path) -> None:
    shutil.rmtree(repository / "image_backbone")

    backbone, _ = stored_models(repository)

    assert (backbone.name, backbone.file_bytes, backbone.is_config_ours) == (
        "image_backbone",
        None,
        False,
    )


def test_a_repository_of_nothing_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no models; run tandem models add"):
        stored_models(tmp_path)


def test_remove_keeps_committed_files(repository: Path) -> None:
    configs = {path: path.read_bytes() for path in repository.glob("*/config.pbtxt")}
    (repository / "calibration.json").write_text("{}")

    deleted = remove_model(repository)

    assert {str(path.relative_to(repository)) for path in deleted} == {
        "image_backbone/1/model.pt",
        "joint_encoder/1/model.pt",
        "calibration.json",
        "manifest.json",
        "tokenizer.json",
    }
    assert files_of(repository) == {"image_backbone/config.pbtxt", "joint_encoder/config.pbtxt"}
    assert {path: path.read_bytes() for path in configs} == configs
    assert not list(repository.glob("*/1"))


def test_remove_deletes_nothing_of_others(repository: Path) -> None:
    add_a_model_of_others(repository)
    (repository / "joint_encoder" / "1" / "notes.txt").write_text("mine")
    (repository / "joint_encoder" / "2").mkdir()
    (repository / "joint_encoder" / "2" / "model.pt").write_text("mine too")

    remove_model(repository)

    assert files_of(repository) == {
        "image_backbone/config.pbtxt",
        "joint_encoder/1/notes.txt",
        "joint_encoder/2/model.pt",
        "joint_encoder/config.pbtxt",
        "theirs/1/model.pt",
        "theirs/config.pbtxt",
    }


def test_remove_without_a_manifest_deletes_nothing(repository: Path) -> None:
    (repository / "manifest.json").unlink()
    before = files_of(repository)

    with pytest.raises(ValueError, match=r"has no model of ours: manifest.json"):
        remove_model(repository)

    assert files_of(repository) == before


def test_a_manifest_whose_names_lead_elsewhere_is_refused(repository: Path, tmp_path: Path) -> None:
    """A name becomes a path: ".." would delete a file outside the repository."""
    outside = tmp_path / "1" / "model.pt"
    outside.parent.mkdir()
    outside.write_text("not ours")
    path = repository / "manifest.json"
    fields = json.loads(path.read_text())
    models = fields["models"]
    models[".."] = models.pop("joint_encoder")
    text = json.dumps(fields).replace('"joint_encoder"', '".."')
    path.write_text(text)

    for read in (remove_model, stored_models, our_manifest):
        with pytest.raises(ValueError, match=r"manifest\.json .*no model is named \"\.\.\""):
            read(repository)

    assert outside.read_text() == "not ours"
    assert (repository / "joint_encoder" / "1" / "model.pt").is_file()


def test_a_remove_that_broke_off_can_be_repeated(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is last to go: until then it tells what is left to delete."""
    unlink = Path.unlink

    def refuse_tokenizer(path: Path, missing_ok: bool = False) -> None:
        if path.name == "tokenizer.json":
            raise PermissionError(path)
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse_tokenizer)
        with pytest.raises(PermissionError):
            remove_model(repository)

    remove_model(repository)

    assert files_of(repository) == {"image_backbone/config.pbtxt", "joint_encoder/config.pbtxt"}
