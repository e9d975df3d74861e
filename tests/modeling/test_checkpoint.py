"""Checkpoints: what is saved is what is loaded, and what cannot be loaded says why."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tests.modeling.published.test_published_checkpoint import LFS_POINTER
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer


def test_a_checkpoint_is_read_back_unchanged(tmp_path: Path) -> None:
    model = save_tiny_checkpoint(tmp_path)

    loaded = load_checkpoint(tmp_path)

    assert loaded.model.config == model.config
    assert loaded.tokenizer.to_str() == tiny_tokenizer().to_str()
    assert loaded.training == {"recipe": {"name": "untrained", "seed": 0}}
    assert not loaded.model.training
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}


def test_rounding_to_half_precision_is_part_of_the_checkpoint(tmp_path: Path) -> None:
    model = save_tiny_checkpoint(tmp_path / "first")

    first = load_checkpoint(tmp_path / "first")
    save_checkpoint(tmp_path / "second", first.model, first.tokenizer, first.training)
    second = load_checkpoint(tmp_path / "second")

    rounded = {name: weight.half() for name, weight in model.state_dict().items()}
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight.half(), rounded[name]), name
        assert torch.equal(weight, weight.half().to(weight.dtype)), name
    assert any(
        not torch.equal(weight, model.state_dict()[name])
        for name, weight in first.model.state_dict().items()
    )
    assert second.weights_sha256 == first.weights_sha256


def test_integers_are_not_rounded(tmp_path: Path) -> None:
    """Batch norms count batches as int64, past what half precision can count to."""
    model = save_tiny_checkpoint(tmp_path)
    for name, weight in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            weight.fill_(100_001)
    save_checkpoint(tmp_path, model, tiny_tokenizer(), {})

    loaded = load_checkpoint(tmp_path).model.state_dict()

    counts = [loaded[name] for name in loaded if name.endswith("num_batches_tracked")]
    assert counts
    assert all(count.item() == 100_001 for count in counts)


def test_weights_have_the_permissions_of_their_folder(tmp_path: Path) -> None:
    """Services run as another user than the one who trained."""
    save_tiny_checkpoint(tmp_path)

    modes = {path.name: path.stat().st_mode & 0o044 for path in tmp_path.iterdir()}

    assert modes["model.safetensors"] == 0o044


def test_training_notes_are_optional(tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path)
    (tmp_path / "training.json").unlink()

    assert load_checkpoint(tmp_path).training == {}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_cut_short_or_missing_is_named(tmp_path: Path, name: str) -> None:
    save_tiny_checkpoint(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"{tmp_path} is not a checkpoint of this version"):
        load_checkpoint(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=f"is not a checkpoint: it lacks {name}"):
        load_checkpoint(tmp_path)


class Payload:
    """Its unpickling makes a file, as it could do anything."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("form", ["pickle", "torch.save"])
def test_a_checkpoint_is_never_unpickled(tmp_path: Path, form: str) -> None:
    """A pickle is code of its sender's: named model.safetensors it is refused, and nothing runs.

    The control: unpickling the very same file would run it.
    """
    save_tiny_checkpoint(tmp_path)
    weights, trace = tmp_path / "model.safetensors", tmp_path / "it-ran"
    if form == "pickle":
        weights.write_bytes(pickle.dumps(Payload(trace)))
    else:
        torch.save({"weights": Payload(trace)}, weights)

    with pytest.raises(ValueError, match=f"{tmp_path} is not a checkpoint of this version"):
        load_checkpoint(tmp_path)

    assert not trace.exists()
    if form == "pickle":
        pickle.loads(weights.read_bytes())
    else:
        # By another name: torch gives one that ends in .safetensors to safetensors.
        torch.load(weights.rename(tmp_path / "model.pt"), weights_only=False)
    assert trace.exists()


def test_a_model_of_the_hub_is_refused_with_the_command_that_exports_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "siglip"}))

    with pytest.raises(ValueError, match=f"published model, .* tandem models add {tmp_path} "):
        CheckpointFiles.read(tmp_path)


def test_a_shape_of_another_version_is_refused_by_folder(tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"experts": 8}))

    with pytest.raises(ValueError, match=r"not a checkpoint of this version: .*experts"):
        load_checkpoint(tmp_path)


def test_weights_of_another_shape_are_refused_by_folder(tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"layer_count": 3}))

    with pytest.raises(ValueError, match=f"{tmp_path}: the weights do not fit"):
        load_checkpoint(tmp_path)


def test_a_git_lfs_pointer_is_named_with_its_remedy(tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path)
    (tmp_path / "config.json").write_bytes(LFS_POINTER)

    with pytest.raises(ValueError, match=r"config\.json.*git lfs pull"):
        load_checkpoint(tmp_path)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    """Nothing is made up: with another head_count the same weights are another function."""
    save_tiny_checkpoint(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    fields.pop("head_count")
    path.write_text(json.dumps(fields))

    with pytest.raises(ValueError, match=r"config\.json: it lacks head_count"):
        CheckpointFiles.read(tmp_path)


def test_no_room_is_made_for_weights_that_are_not_there(tmp_path: Path) -> None:
    """However large a model config.json tells of: of 65,536 wide it would be 400 GB."""
    save_tiny_checkpoint(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"width": 65_536}))

    with pytest.raises(ValueError, match=r"the weights do not fit .* instead of \[.*65536"):
        load_checkpoint(tmp_path)


def test_weights_of_other_numbers_are_named(tmp_path: Path) -> None:
    """Infinite ones, and the integers of a quantised model."""
    save_tiny_checkpoint(tmp_path)
    name = "joint_encoder.pooler.bias"
    weights = load_file(tmp_path / "model.safetensors")
    odd = {
        "NaN or infinite": weights[name] * float("inf"),
        "of another type": torch.ones(16, dtype=torch.int8),
    }
    for message, values in odd.items():
        save_file(weights | {name: values}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=rf"{message}:? joint_encoder\.pooler\.bias"):
            load_checkpoint(tmp_path)
