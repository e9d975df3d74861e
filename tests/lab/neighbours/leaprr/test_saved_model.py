"""Networks on disk: the same scores after reading, and errors that name the file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from safetensors.torch import load_file, save_file

from tandem.lab.neighbours.leaprr.config import Profile, leaprr_config
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel, refined_scores
from tandem.lab.neighbours.leaprr.saved_model import load_leaprr, save_leaprr
from tandem.lab.neighbours.lists.neighbour_lists import SimilarityLists
from tandem.platform.files.json_object import FileInvalid
from tests.support.neighbours.similarity_views import similarity_view


def _model(profile: Profile, seed: int = 1) -> LeaprrModel:
    config = replace(leaprr_config(profile), pillar_count=4, affinity_neighbours=4)
    if profile == "code":
        config = replace(config, width=8, head_count=2)
    return LeaprrModel.untrained(config, seed)


def _lists() -> SimilarityLists:
    embeddings = np.random.default_rng(1).normal(size=(18, 4))
    similarity = embeddings @ embeddings.T
    return similarity_view(
        similarity[:6, 6:], similarity[:6, :6], similarity[6:, 6:], np.arange(12) % 6
    )


@pytest.mark.parametrize("profile", ["paper", "code"])
def test_a_read_model_scores_the_same(tmp_path: Path, profile: Profile) -> None:
    """Bit for bit, in both directions; another model does not."""
    path, model = tmp_path / "leaprr.safetensors", _model(profile)

    save_leaprr(path, model)

    read = load_leaprr(path)
    assert read.config == model.config
    for view, is_text_query in [(_lists(), False), (_lists().reversed(), True)]:
        expected = refined_scores(model, view, is_text_query=is_text_query)[1]
        assert_array_equal(refined_scores(read, view, is_text_query=is_text_query)[1], expected)
        other = refined_scores(_model(profile, seed=2), view, is_text_query=is_text_query)[1]
        assert (other != expected).any()
    assert [each.name for each in tmp_path.iterdir()] == ["leaprr.safetensors"]


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "leaprr.safetensors"
    save_leaprr(path, _model("paper"))
    weights = load_file(path)

    save_file(weights, tmp_path / "plain.safetensors")
    with pytest.raises(FileInvalid, match=r"plain\.safetensors has no LeaPRR networks"):
        load_leaprr(tmp_path / "plain.safetensors")
    save_file(weights, tmp_path / "old.safetensors", {"leaprr_config": '{"width": 3}'})
    with pytest.raises(FileInvalid, match=r"old\.safetensors is of another version"):
        load_leaprr(tmp_path / "old.safetensors")


def test_a_folder_of_several_seeds_names_one(tmp_path: Path) -> None:
    """As tandem train neighbours --seeds leaves it."""
    for name in ("seed_2", "seed_1"):
        (tmp_path / name).mkdir()
        save_leaprr(tmp_path / name / "leaprr.safetensors", _model("paper"))

    with pytest.raises(FileInvalid, match=f"several seeds; name one of them: {tmp_path}/seed_1"):
        load_leaprr(tmp_path / "leaprr.safetensors")
