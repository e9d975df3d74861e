"""A run that is killed continues to the same weights."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch

from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs import loss_curve
from tandem.lab.training.runs import run as run_module
from tandem.lab.training.runs.run import check_unfinished
from tandem.lab.training.runs.run_state import FILE_NAME, RunState, RunStateFile, RunStateInvalid
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.train import train
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.checkpoint_files import TRAINING, WEIGHTS
from tests.support.faults.run_counts import run_count
from tests.support.faults.small_disk import SmallDisk
from tests.support.training.small_runs import Stopped, stop_at

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("run_state")

KILL_COUNT = run_count(quick=1, full=20)
# Long enough in both stages to be stopped in either.
RECIPE = replace(
    tiny(1),
    backbone_step_count=12,
    round_count=24,
    dev_every_round_count=8,
    dev_family_count=2,
    mlm_steps_per_round=1,
    mlm_batch_size=8,
)
# What is not killed stops in round 10.
ENCODER_ONLY = replace(RECIPE, backbone_step_count=1, round_count=14)


MINING = replace(
    ENCODER_ONLY,
    mined_from_round_count=2,
    mined_refresh_round_count=9,
    mined_neighbour_count=10,
    mined_negative_share=0.5,
    ance_steps_per_round=1,
    ance_batch_size=4,
    ance_negative_count=3,
)
LAST_STATE = "last_state.pt"


@pytest.mark.skipif(bool(SmallDisk.why_not()), reason=SmallDisk.why_not() or "")
def test_a_full_disk_keeps_the_last_state(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 4 << 20) as disk:
        file = RunStateFile(disk.path / "run", RECIPE)
        file.save(state_at(1))
        disk.fill(left_bytes=300_000)

        with pytest.raises(OSError, match="No space left on device"):
            file.save(state_at(2))

        assert [path.name for path in (disk.path / "run").iterdir()] == [FILE_NAME]
        loaded = file.load()
        assert loaded is not None
        assert loaded.step == 1


def state_at(step: int) -> RunState:
    return RunState(
        stage="matcher",
        step=step,
        modules={"one": {"weights": torch.zeros(200_000)}},
        optimiser={},
        schedule={},
        torch_rng=torch.get_rng_state(),
        batch_rng=torch.zeros(0, dtype=torch.int64),
        mined={},
        best=None,
        seconds=1.0,
    )


@pytest.fixture
def rng() -> random.Random:
    """A fresh seed each run, printed with the failure; TANDEM_CRASH_SEED repeats it."""
    seed = int(os.environ.get("TANDEM_CRASH_SEED", random.SystemRandom().randrange(2**32)))
    print(f"repeat with TANDEM_CRASH_SEED={seed}")
    return random.Random(seed)


# A process of its own, as a user's run is. It says when it begins, so that kills hit the run.
RUN = """
import sys, torch
from pathlib import Path
from tandem.lab.training.runs.run_state import RunStateFile
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.train import train
from tests.lab.training.runs.test_run_state import LAST_STATE, RECIPE
torch.set_num_threads(1)
# The run's end removes the state, whose weights are exact where the checkpoint's are rounded.
RunStateFile.delete = lambda self: self._path.rename(self._path.with_name(LAST_STATE))
print("begins", flush=True)
folder = Path(sys.argv[1])
train(RECIPE, SceneSource(), folder, lambda *_: None, resume=True, state_every_step_count=1)
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Returns a run that has begun, continuing where the folder's run stopped."""
    child = subprocess.Popen([sys.executable, "-c", RUN, str(folder)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"begins\n"
    return child


def has_ended(child: subprocess.Popen[bytes], seconds: float | None) -> bool:
    try:
        return child.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False


def stop_after(round_count: int, folder: Path, recipe: Recipe = ENCODER_ONLY) -> None:
    """Trains until a round of the encoder, then leaves as a crash would."""
    stop = stop_at("encoder", round_count)
    with pytest.raises(Stopped):
        train(recipe, SceneSource(), folder, stop, state_every_step_count=5)


def weights(folder: Path) -> str:
    return load_checkpoint(folder).weights_sha256


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Returns every weight and buffer as it was at the run's end, in float32."""
    state = torch.load(folder / LAST_STATE, weights_only=True)["state"]
    assert (state["stage"], state["step"]) == ("encoder", RECIPE.round_count)
    return {
        f"{module}.{name}": tensor
        for module, tensors in state["modules"].items()
        for name, tensor in tensors.items()
    }


def curve(folder: Path) -> list[dict[str, Any]]:
    """Returns the loss curve without the seconds, which no two runs share."""
    return [
        {name: value for name, value in line.items() if name != "seconds"}
        for line in loss_curve.read_curve(folder)
    ]


# Twenty take a minute and a half alone; with others that use both cores they have taken five.
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_at_random_moments_change_no_weight(tmp_path: Path, rng: random.Random) -> None:
    """`kill -9`, in both stages: every run that ends has the uninterrupted weights and loss curve.

    The best checkpoint's weights, and those after the last step, bit for bit.

    Once, and twenty times by `make test-faults`; more where all came before a state was written.
    """
    with start(tmp_path / "whole") as child:
        # From here, or half of the kills would come after the end.
        start_time = time.monotonic()
        assert has_ended(child, None)
    whole_seconds = time.monotonic() - start_time
    expected, expected_curve = weights(tmp_path / "whole"), curve(tmp_path / "whole")
    expected_last = last_weights(tmp_path / "whole")
    assert {tensor.dtype for tensor in expected_last.values()} >= {torch.float32}
    assert [line["round"] for line in expected_curve] == list(range(1, RECIPE.round_count + 1))
    kill_count, finished_count = 0, 0
    stages: set[str] = set()
    while (is_killing := kill_count < KILL_COUNT or not stages) or finished_count == 0:
        folder = tmp_path / f"killed-{finished_count}"
        seconds = rng.uniform(0, whole_seconds) if is_killing else None
        with start(folder) as child:
            is_whole = has_ended(child, seconds)
            child.kill()
        if is_whole:
            assert weights(folder) == expected
            assert curve(folder) == expected_curve
            last = last_weights(folder)
            assert last.keys() == expected_last.keys()
            assert all(torch.equal(last[name], each) for name, each in expected_last.items())
            assert not (folder / FILE_NAME).exists()
            finished_count += 1
        else:
            kill_count += 1
            if state := RunStateFile(folder, RECIPE).load():
                stages.add(state.stage)
    print(f"{kill_count} kills, seen in {sorted(stages)}; {finished_count} runs ended")


@pytest.fixture(name="stopped", scope="module")
def _stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that stopped in round 10; tests change copies of it."""
    folder = tmp_path_factory.mktemp("stopped")
    stop_after(10, folder)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("whole")
    train(ENCODER_ONLY, SceneSource(), folder, lambda *_: None)
    return weights(folder)


@pytest.mark.parametrize(
    "forgotten",
    [
        None,
        # What is forgotten fails the case above too. These show that it would.
        *(
            pytest.param(forgotten, marks=pytest.mark.slow)
            for forgotten in (
                (torch.nn.Module, "load_state_dict"),
                (torch.optim.AdamW, "load_state_dict"),
                (torch.optim.lr_scheduler.LambdaLR, "load_state_dict"),
                (run_module, "restore_batch_rng"),
            )
        ),
    ],
)
def test_each_state_that_a_resumed_run_omits_changes_its_weights(
    tmp_path: Path,
    stopped: Path,
    whole: str,
    monkeypatch: pytest.MonkeyPatch,
    forgotten: tuple[object, str] | None,
) -> None:
    """Positive controls of the test above: what steps change is not kept for nothing.

    Only torch's generator is left out here: no recipe has dropout, so none draws from it.
    """
    copytree(stopped, tmp_path, dirs_exist_ok=True)

    with monkeypatch.context() as patch:
        if forgotten:
            patch.setattr(*forgotten, lambda *_: None)
        train(ENCODER_ONLY, SceneSource(), tmp_path, lambda *_: None, resume=True)

    assert (weights(tmp_path) == whole) is (forgotten is None)


@pytest.fixture(scope="module")
def whole_mined(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("whole-mined")
    train(MINING, SceneSource(), folder, lambda *_: None)
    return weights(folder)


# Without the negatives it had the first case fails. The second shows that it would.
@pytest.mark.parametrize("forgets", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_resumed_run_continues_with_its_negatives(
    tmp_path: Path, whole_mined: str, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """Mined before rounds 3 and 12, stopped in round 10; mined by later weights they are others."""
    stop_after(10, tmp_path, MINING)
    if forgets:
        path = tmp_path / FILE_NAME
        content = torch.load(path, weights_only=True)
        mined = content["state"]["mined"]
        assert mined
        mined["texts"], mined["images"] = mined["texts"].flip(0), mined["images"].flip(0)
        torch.save(content, path)

    train(MINING, SceneSource(), tmp_path, lambda *_: None, resume=True)

    assert (weights(tmp_path) == whole_mined) is not forgets


@pytest.mark.parametrize(
    ("files", "is_over"),
    [
        ({TRAINING: '{"recipe": {"round_count": 2}}'}, False),
        ({TRAINING: '{"recipe": {"round_count": 2}}', loss_curve.FILE_NAME: "{}\n{}\n"}, True),
        ({TRAINING: '{"recipe": {"round_count": 2}}', loss_curve.FILE_NAME: "{}\n{}"}, False),
        ({TRAINING: '{"recipe": {"round_c', loss_curve.FILE_NAME: "{}\n{}\n"}, False),
        (
            {
                TRAINING: '{"recipe": {"round_count": 2}}',
                loss_curve.FILE_NAME: "{}\n{}\n",
                FILE_NAME: "a state",
            },
            False,
        ),
    ],
)
def test_only_a_whole_run_is_over(tmp_path: Path, files: dict[str, str], is_over: bool) -> None:
    """Its checkpoint's last round is in its curve, and its state is gone.

    Killed before its first state, in its first round's files even, a run may begin again.
    """
    for name, content in files.items():
        (tmp_path / name).write_text(content)

    with (
        pytest.raises(RunStateInvalid, match=r"is over.*--overwrite") if is_over else nullcontext()
    ):
        check_unfinished(tmp_path)


def test_another_recipes_state_is_refused(tmp_path: Path, stopped: Path) -> None:
    copytree(stopped, tmp_path, dirs_exist_ok=True)

    with pytest.raises(RunStateInvalid, match="another recipe: margin differ"):
        train(
            replace(ENCODER_ONLY, margin=0.3), SceneSource(), tmp_path, lambda *_: None, resume=True
        )

    assert (tmp_path / FILE_NAME).exists()


def test_a_state_from_before_a_field_existed_resumes(tmp_path: Path, stopped: Path) -> None:
    """It was made by what is the default now; a field that is there no more is a difference."""
    copytree(stopped, tmp_path, dirs_exist_ok=True)
    file = tmp_path / FILE_NAME
    content = torch.load(file, weights_only=True)
    of_today = content["recipe"]
    since = {name: value for name, value in of_today.items() if name != "regions_sha256"}

    torch.save(content | {"recipe": None}, file)
    with pytest.raises(RunStateInvalid, match="of another version; delete it"):
        train(ENCODER_ONLY, SceneSource(), tmp_path, lambda *_: None, resume=True)
    torch.save(content | {"recipe": of_today | {"warp": 0}}, file)
    with pytest.raises(RunStateInvalid, match="another recipe: warp differ"):
        train(ENCODER_ONLY, SceneSource(), tmp_path, lambda *_: None, resume=True)
    torch.save(content | {"recipe": since}, file)
    with pytest.raises(RunStateInvalid, match="another recipe: regions_sha256 differ"):
        RunStateFile(tmp_path, replace(ENCODER_ONLY, regions_sha256="1f")).load()
    train(ENCODER_ONLY, SceneSource(), tmp_path, lambda *_: None, resume=True)

    assert load_checkpoint(tmp_path).training["recipe"] == of_today


def _changed(**fields: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = torch.load(folder / FILE_NAME, weights_only=True)
        content["state"] |= fields
        torch.save(content, folder / FILE_NAME)

    return change


def _without_best(folder: Path) -> None:
    _changed(best={"be_r1": 1.0, "be_r10": 2.0, "ce_r1": None})(folder)
    (folder / WEIGHTS).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_changed(stage="rotors"), "of the stage 'rotors', which this release does not have"),
        (_changed(modules={"encoder": {}, "backbone": {}}), "not fit this release's encoder stage"),
        (_changed(schedule={}), "not fit this release's encoder stage .*delete it"),
        (_without_best, "lacks model.safetensors, its best .*restore"),
    ],
)
def test_a_state_of_other_code_is_refused_and_stays(
    tmp_path: Path, stopped: Path, change: Callable[[Path], object], fault: str
) -> None:
    copytree(stopped, tmp_path, dirs_exist_ok=True)
    change(tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()

    with pytest.raises(RunStateInvalid, match=fault):
        train(ENCODER_ONLY, SceneSource(), tmp_path, lambda *_: None, resume=True)

    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "fault"),
    [(b"", "is empty"), (b"PK\x03\x04 cut", "is damaged")],
)
def test_a_damaged_state_is_refused(tmp_path: Path, damage: bytes, fault: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(damage)

    with pytest.raises(RunStateInvalid, match=rf"run_state\.pt {fault}.*delete it"):
        train(ENCODER_ONLY, SceneSource(), tmp_path, lambda *_: None, resume=True)


def test_without_resume_a_run_starts_over(tmp_path: Path, stopped: Path, whole: str) -> None:
    """The state that lies there is not looked at."""
    copytree(stopped, tmp_path, dirs_exist_ok=True)
    (tmp_path / FILE_NAME).write_bytes(b"not a state")
    assert len(curve(tmp_path)) == 10

    train(ENCODER_ONLY, SceneSource(), tmp_path, lambda *_: None)

    assert weights(tmp_path) == whole
    assert len(curve(tmp_path)) == ENCODER_ONLY.round_count
