"""What opening an engine's folder takes, counted rather than timed, and what it refuses."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tandem import AsyncEngine, Engine
from tandem.stack.start_refused import StartRefused
from tests.support.grid import drawn

# Counts child processes, and says what was there already when torch's import began.
_OPENED = """
import sys, threading
children, before_torch = [], []
def note(event, arguments):
    if event == "subprocess.Popen":
        children.append(arguments)
    elif event == "import" and arguments[0] == "torch" and not before_torch:
        before_torch.extend(thread.name for thread in threading.enumerate())
sys.addaudithook(note)
from tandem import Engine
assert not {"torch", "tandem.lab.evaluation.reports.report"} & set(sys.modules)
engine = Engine(sys.argv[1])
opened_children = len(children)
engine.describe_model()
engine.close()
print(opened_children, any(name.startswith("tandem-engine") for name in before_torch))
"""


# A child too many or too few shows with two shards as it does with one.
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_opening_starts_one_child_a_shard_and_imports_torch_last(
    tmp_path: Path, tiny_repository: Path, shards: int
) -> None:
    """Only a store that may be damaged has a child; torch would hold up all that comes after."""
    with Engine(tmp_path, model=tiny_repository, shards=shards) as engine:
        texts = [(f"text-{n}", f"{n} cars") for n in range(6)]
        assert not any(each.error for each in engine.ingest(texts, index_id="texts"))
    (tmp_path / "model_repository").symlink_to(tiny_repository)
    ran = subprocess.run(
        [sys.executable, "-c", _OPENED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split() == [str(shards), "True"], ran.stderr


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"shards": 0}, ValueError, "shards is 0; give 1 to 8, or None"),
        ({"shards": "2"}, TypeError, "shards is '2'; give a number"),
        ({"folder": ""}, ValueError, "folder is empty; give a path"),
        ({"folder": None}, TypeError, "folder is of type NoneType; give a str or a Path"),
        ({"caches": "no"}, TypeError, "caches is 'no'; give True or False"),
        ({"timeout_seconds": 0}, ValueError, "timeout_seconds is 0; give a number above 0"),
    ],
)
@pytest.mark.parametrize("engine", drawn([Engine, AsyncEngine], "wrong argument"))
def test_a_wrong_argument_is_named_before_anything_is_opened(
    tmp_path: Path, engine: Any, given: dict[str, Any], error: type[Exception], told: str
) -> None:
    """And no folder is made, or kept from others."""
    folder = tmp_path / "new"
    with pytest.raises(error, match=told):
        engine(**{"folder": folder} | given)
    assert not folder.exists()


def test_a_path_without_a_folder_or_a_model_is_named(tmp_path: Path, tiny_repository: Path) -> None:
    """A file, a model that is a file, and another number of shards than the folder has."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StartRefused, match=r"file is a file, or lies in one: give a folder$"):
        Engine(file, model=tiny_repository)
    with pytest.raises(ValueError, match="file is a file: model is the folder of a checkpoint"):
        Engine(tmp_path / "new", model=file)
    Engine(tmp_path / "two", model=tiny_repository, shards=2).close()
    with pytest.raises(StartRefused, match="has 2 shards, not 1: leave out shards, or give"):
        Engine(tmp_path / "two", model=tiny_repository, shards=1)
    Engine(tmp_path / "two", model=tiny_repository).close()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_engine_is_not_copied(engine: Engine, copied: Any) -> None:
    """Neither into this process nor for another."""
    with pytest.raises(TypeError, match="an engine can be neither pickled nor copied"):
        copied(engine)


_FORKED = """
import os, sys, time
from tandem import Engine
engine = Engine(sys.argv[1], model=sys.argv[2])
engine.describe_model()  # no import is in progress at the fork
asking, telling = os.pipe()
if (child := os.fork()) == 0:
    try:
        engine.search("two cars", index_id="texts")
    except ValueError as error:
        print(error, flush=True)
    engine.close()
    os.write(telling, b"!")
    time.sleep(60)
    os._exit(0)
os.read(asking, 1)
engine.close()
Engine(sys.argv[1], model=sys.argv[2]).close()
os.kill(child, 9)
print("opened again", flush=True)
"""


def test_a_forked_process_is_refused_and_does_not_keep_the_folder(
    tmp_path: Path, tiny_repository: Path
) -> None:
    """It has none of the engine's threads, so a call would wait for ever."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKED, str(tmp_path), str(tiny_repository)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    told, opened = ran.stdout.splitlines()
    assert "from which this one was forked: call it there" in told
    assert opened == "opened again", ran.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, tiny_repository: Path) -> None:
    """With what to do instead."""
    tmp_path.chmod(0o500)
    with pytest.raises(StartRefused, match="may not be written to by this user: give another"):
        Engine(tmp_path / "new", model=tiny_repository)
