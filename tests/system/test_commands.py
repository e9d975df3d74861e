"""The commands as a person types them: a search, an error and `up` in processes of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.records import Record
from tandem.stack.stack import LocalStack

TANDEM = [sys.executable, "-m", "tandem.cli"]


def test_search_by_text(stack: LocalStack, scenes_index: str) -> None:
    """Prints ranks, scores, ids and stage times."""
    ran = subprocess.run(
        [*TANDEM, "search", "two dogs left of one umbrella", "--address", stack.address],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
    )
    output = ran.stdout

    assert ran.returncode == 0, ran.stderr
    assert "scenes-test-" in output
    assert "rerank" in output
    assert "probability" in output


def test_search_by_picture(
    stack: LocalStack, scenes_index: str, records: list[Record], tmp_path: Path
) -> None:
    """Prints the texts that fit."""
    picture = tmp_path / "picture.png"
    picture.write_bytes(records[0].image.read())

    output = _run("search", "--image", str(picture), "--address", stack.address)

    assert "-en-" in output


def test_a_named_error_is_one_line_and_a_status(stack: LocalStack) -> None:
    """No traceback: the reason, and what to do."""
    failed = subprocess.run(
        [*TANDEM, "search", "cat", "--index", "nowhere", "--address", stack.address],
        capture_output=True,
        text=True,
        check=False,
    )

    assert failed.returncode == 1
    assert "INDEX_NOT_FOUND" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_ingest_prints_rate_and_errors(stack: LocalStack, tmp_path: Path) -> None:
    """A corpus with one broken picture: the others are stored, the broken one is named."""
    (tmp_path / "images").mkdir()
    Image.new("RGB", (50, 40), "red").save(tmp_path / "images" / "good.png")
    (tmp_path / "images" / "broken.jpg").write_bytes(b"no picture")
    (tmp_path / "dataset.json").write_text(
        """{"dataset": "two", "images": [
        {"filename": "good.png", "imgid": 0, "split": "test", "sentids": [0],
         "sentences": [{"raw": "a red field", "imgid": 0, "sentid": 0, "tokens": []}]},
        {"filename": "broken.jpg", "imgid": 1, "split": "test", "sentids": [1],
         "sentences": [{"raw": "nothing", "imgid": 1, "sentid": 1, "tokens": []}]}]}"""
    )

    command = ["ingest", str(tmp_path / "dataset.json"), "--index", "two"]

    ran = CliRunner().invoke(app, [*command, "--address", stack.address])

    assert ran.exit_code == 1
    assert "3 items stored, 1 refused" in ran.stdout
    assert "IMAGE_UNREADABLE" in ran.stderr


def test_evaluate_prints_recalls_with_intervals(stack: LocalStack) -> None:
    """Both directions, retrieval alone and reranked."""
    output = _run("evaluate", "--count", "40", "--query-count", "10", "--address", stack.address)

    assert "text→image" in output
    assert "image→text" in output
    # A row each way, in the table of recalls and in that of NDCG and MAP.
    assert output.count("BE + CE") == 6
    assert "95 % CI" in output


@pytest.mark.parametrize("options", [[], pytest.param(["--tls"], marks=pytest.mark.slow)])
def test_up_serves_and_cleans_up(options: list[str], tiny_checkpoint: Path, tmp_path: Path) -> None:
    """It exports its model first; Ctrl-C stops every process that it started, with status 0.

    Once it serves, it ingests what it was given.
    """
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (50, 40), "red").save(tmp_path / "photos" / "red.png")
    environment = os.environ | {"COLUMNS": "200"}
    with (tmp_path / "out.txt").open("wb") as out:
        up = subprocess.Popen(
            [
                *(*TANDEM, "up", "--free-ports", "--data", str(tmp_path / "data")),
                *("--model-repository", str(tmp_path / "model_repository")),
                # A small model: the export of the shipped one takes twenty seconds of a core.
                *("--checkpoint", str(tiny_checkpoint)),
                *("--ingest", str(tmp_path / "photos"), "--index", "photos", *options),
            ],
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    try:
        printed = _wait_for(tmp_path / "out.txt", "Ctrl-C stops everything", up)
        pids = [int(line.split()[-1]) for line in printed.splitlines() if "127.0.0.1" in line]
        assert len(pids) == 8
        assert all(_is_alive(pid) for pid in pids)
        printed = _wait_for(tmp_path / "out.txt", "search it by: ", up)
        assert "1 items stored, 0 refused" in printed

        up.send_signal(signal.SIGINT)

        assert up.wait(timeout=60) == 0
        assert not any(_is_alive(pid) for pid in pids)
    finally:
        up.kill()
        up.wait()


def _run(*arguments: str) -> str:
    ran = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return ran.stdout


def _wait_for(path: Path, text: str, process: subprocess.Popen[bytes]) -> str:
    deadline_time = time.monotonic() + 120
    while text not in (printed := path.read_text()):
        if process.poll() is not None or time.monotonic() > deadline_time:
            pytest.fail(f"up did not come up:\n{printed}")
        time.sleep(0.2)
    return printed


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
