"""A run's folder: resumed as if never stopped, errors by name, and what divergence leaves."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tandem.lab.neighbours.leaprr.config import LeaprrConfig, leaprr_config
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel
from tandem.lab.neighbours.leaprr.served_networks import trained_over
from tandem.lab.neighbours.leaprr.training import LeaprrDiverged
from tandem.lab.neighbours.leaprr.training_folder import (
    MANIFEST_NAME,
    MODEL_NAME,
    STATE_NAME,
    LeaprrFolder,
    LeaprrPlan,
)
from tandem.lab.neighbours.lists.corpus_neighbours import CorpusNeighbours, with_pools
from tandem.lab.neighbours.lists.neighbour_file import NeighbourManifest
from tandem.platform.files.json_object import FileInvalid
from tests.support.neighbours.planted_corpus import planted_neighbours

Corpora = tuple[CorpusNeighbours, CorpusNeighbours]

CORPORA = planted_neighbours(1, 10, depth=10), planted_neighbours(2, 10, depth=10)


class _Stopped(Exception):
    """Stands for a kill."""


def _plan(epoch_count: int = 4, corpora: Corpora = CORPORA, **changes: object) -> LeaprrPlan:
    config: LeaprrConfig = replace(
        leaprr_config("code"),
        width=8,
        head_count=2,
        pillar_count=4,
        image_query_neighbours=5,
        text_query_neighbours=4,
        fixed_threshold_nodes=None,
        batch_size=10,
        **changes,  # type: ignore[arg-type]
    )
    manifests = [NeighbourManifest.of(each) for each in corpora]
    return LeaprrPlan("code", config, 1, epoch_count, *manifests)


def _stop_after(epoch_count: int) -> object:
    def stop(epoch: int, _recall_sum: float) -> None:
        if epoch == epoch_count:
            raise _Stopped

    return stop


def _weights(model: LeaprrModel) -> list[torch.Tensor]:
    return [*model.image_queries.parameters(), *model.text_queries.parameters()]


def test_a_resumed_run_gives_the_same_networks(tmp_path: Path) -> None:
    """Weights, losses' order and momentum continue, to the bit; the control has another seed."""
    whole, stopped = LeaprrFolder(tmp_path / "whole"), LeaprrFolder(tmp_path / "stopped")
    whole.train(_plan(), CORPORA, resume=False)
    with pytest.raises(_Stopped):
        stopped.train(_plan(), CORPORA, resume=False, on_epoch=_stop_after(2))  # type: ignore[arg-type]
    assert stopped.has_state

    steps: list[int] = []
    stopped.train(_plan(), CORPORA, resume=True, on_step=lambda step, _: steps.append(step))

    assert steps == [5, 6, 7, 8]  # two of each epoch
    (one, told), (other, also_told) = whole.read(), stopped.read()
    assert also_told.dev_recall_sums == told.dev_recall_sums
    for a, b in zip(_weights(one), _weights(other), strict=True):
        assert torch.equal(a, b)
    assert not stopped.has_state
    control = LeaprrFolder(tmp_path / "control")
    control.train(replace(_plan(), seed=2), CORPORA, resume=False)
    assert not torch.equal(_weights(control.read()[0])[0], _weights(one)[0])


def test_the_manifest_describes_the_training(tmp_path: Path) -> None:
    folder, plan = LeaprrFolder(tmp_path), _plan(epoch_count=2)

    folder.train(plan, CORPORA, resume=False)

    training = folder.read()[1]
    assert training.plan == plan
    assert training.dev_recall_sums[training.best_epoch - 1] == max(training.dev_recall_sums)
    assert folder.is_over(plan)
    assert not folder.is_over(replace(plan, seed=9))
    assert sorted(each.name for each in tmp_path.iterdir()) == [MODEL_NAME, MANIFEST_NAME]


def test_divergence_in_a_later_epoch_leaves_a_whole_model(tmp_path: Path) -> None:
    folder = LeaprrFolder(tmp_path)
    with pytest.raises(_Stopped):
        folder.train(_plan(), CORPORA, resume=False, on_epoch=_stop_after(1))  # type: ignore[arg-type]
    content = torch.load(tmp_path / STATE_NAME, weights_only=True)
    next(iter(content["state"]["networks"]["text_queries"].values())).fill_(torch.nan)
    torch.save(content, tmp_path / STATE_NAME)

    with pytest.raises(LeaprrDiverged, match=r"loss of step 3 of 8 is nan.*keeps the best"):
        folder.train(_plan(), CORPORA, resume=True)

    assert all(each.isfinite().all() for each in _weights(folder.read()[0]))


def test_a_run_that_cannot_resume_is_named(tmp_path: Path) -> None:
    folder = LeaprrFolder(tmp_path)
    with pytest.raises(ValueError, match=r"there is no run in .* to resume"):
        folder.train(_plan(), CORPORA, resume=True)
    with pytest.raises(_Stopped):
        folder.train(_plan(), CORPORA, resume=False, on_epoch=_stop_after(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="holds an unfinished run"):
        folder.check_free()
    with pytest.raises(ValueError, match="of another run: config margin, seed differ"):
        folder.train(replace(_plan(margin=0.3), seed=2), CORPORA, resume=True)
    (tmp_path / STATE_NAME).write_bytes(b"no state")
    with pytest.raises(ValueError, match=r"run_state\.pt is damaged"):
        folder.train(_plan(), CORPORA, resume=True)

    folder.clear()
    folder.train(_plan(epoch_count=1), CORPORA, resume=False)
    with pytest.raises(ValueError, match="is over, so there is nothing to resume"):
        folder.train(_plan(epoch_count=1), CORPORA, resume=True)
    with pytest.raises(ValueError, match="holds trained networks"):
        folder.check_free()


def test_a_manifest_of_other_networks_is_refused(tmp_path: Path) -> None:
    one, other = LeaprrFolder(tmp_path / "one"), LeaprrFolder(tmp_path / "other")
    one.train(_plan(epoch_count=1), CORPORA, resume=False)
    other.train(_plan(epoch_count=1, margin=0.3), CORPORA, resume=False)

    (other.path / MANIFEST_NAME).replace(one.path / MANIFEST_NAME)

    with pytest.raises(FileInvalid, match=r"training\.json describes other networks"):
        one.read()


def test_networks_of_another_form_of_inputs_are_refused(tmp_path: Path) -> None:
    """Those of releases that did not say how a cross-encoder's pairs compare, or compared all."""
    over_ce = LeaprrFolder(tmp_path / "ce")
    rng = np.random.default_rng(3)
    one, other = (
        with_pools(each, {}, rng.normal(size=(10, 3)), rng.normal(size=(20, 3))) for each in CORPORA
    )
    over_ce.train(_plan(1, (one, other)), (one, other), resume=False)
    assert over_ce.read()[1].scored_pairs == "own_pools"

    manifest = over_ce.path / MANIFEST_NAME
    content = json.loads(manifest.read_text())
    for former, named in [(None, "that an older release made"), ("shared_cosines",) * 2]:
        manifest.write_text(json.dumps(content | {"scored_pairs": former}))
        wrong = rf"ce learned over BE \+ CE 3 .*{named}.* train it again"
        for reading in (over_ce.read, partial(trained_over, over_ce.path)):
            with pytest.raises(FileInvalid, match=wrong):
                reading()
