"""`tandem up --one-process`: the public API from one process."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client, Modality
from tests.support.pictures.pictures import encoded, noise

UP = [sys.executable, "-m", "tandem.cli", "up", "--one-process", "--free-ports", "--shards", "1"]


def test_the_pages_commands_search_ones_own_folder(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """As docs/engine.md has them; the next start stores nothing twice.

    A file that is no picture is said by its name, and everything serves on.
    """
    page = (Path(__file__).parents[2] / "docs/engine.md").read_text()
    [(up, search)] = re.findall(r"^(tandem up .*)\n(tandem search .*)$", page, re.MULTILINE)
    (tmp_path / "photos").mkdir()
    for number in range(3):
        (tmp_path / f"photos/{number}.png").write_bytes(encoded(noise(number), "PNG"))
    (tmp_path / "photos/broken.jpg").write_bytes(b"no picture")
    small = ["--free-ports", "--shards", "1", "--checkpoint", str(tiny_checkpoint)]

    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "tandem.cli", *shlex.split(up)[1:], *small],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(5)]
            try:
                address = lines[0].split()[2].removesuffix(",")
                command = [*shlex.split(search)[1:], "--address", address, "--json"]
                found = CliRunner().invoke(app, command)
                with Client(address, timeout_seconds=60.0) as client:
                    index = client.describe_index(index_id="photos")
            finally:
                process.send_signal(signal.SIGTERM)
                rest, errors = process.communicate()

        assert process.returncode == 0, errors
        assert "3 items stored, 1 refused" in lines[3]
        assert "the server continues; try again by: tandem ingest photos --index" in lines[4]
        assert "broken: IMAGE_UNREADABLE" in errors
        assert rest == "stopped\n"
        assert found.exit_code == 0, found.output
        items = json.loads(found.stdout)["items"]
        assert {each["item_id"] for each in items} == {"0", "1", "2"}
        assert index.item_count(Modality.IMAGE) == 3


def test_a_stop_in_the_middle_of_its_ingest_ends_both(
    tmp_path: Path, tiny_checkpoint: Path, tiny_repository: Path
) -> None:
    """The ingest says what is stored; no call is cut off, and no process is left."""
    shutil.copytree(tiny_repository, tmp_path / "models")
    places = {"--data": "data", "--model-repository": "models"}
    options = [part for option, name in places.items() for part in (option, tmp_path / name)]
    command = [*UP, *options, "--checkpoint", tiny_checkpoint, "--ingest", "scenes"]
    with subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        begun = process.stderr.readline()
        # To the whole group, as Ctrl-C in a terminal.
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=60)

    assert begun == "ingest into scenes: begins, 2,000 pictures\n"
    assert process.returncode == 0, errors
    assert "items are stored and stay; the same command again stores the rest" in errors
    assert "Traceback" not in errors
    assert printed.splitlines()[-2:] == ["Ctrl-C stops it.", "stopped"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--ingest", "nowhere"], "no corpus 'nowhere'"),
        # The corpus is looked at where its name is.
        pytest.param(["--ingest", "empty"], "empty has no picture", marks=pytest.mark.slow),
        (["--ingest", "scenes", "--index", "My Scenes"], "INDEX_ID_INVALID"),
        (["--index", "photos"], "give --ingest too"),
    ],
)
def test_what_cannot_be_ingested_is_refused_before_anything_starts(
    options: list[str], why: str, tmp_path: Path
) -> None:
    """By its name, and before a folder is made."""
    (tmp_path / "empty").mkdir()
    ran = subprocess.run(
        [*UP, "--data", "data", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 1
    assert why in " ".join(ran.stderr.split())
    assert not (tmp_path / "data").exists()


def test_options_of_several_processes_are_refused(tmp_path: Path) -> None:
    """Before a folder is made."""
    ran = subprocess.run(
        [*UP, "--data", str(tmp_path / "data"), "--tls", "--swaps"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert "--swaps, --tls needs several processes: leave out --one-process" in ran.stderr
    assert not (tmp_path / "data").exists()


def test_a_taken_port_is_named(
    tmp_path: Path, tiny_checkpoint: Path, tiny_repository: Path
) -> None:
    """Before the model is loaded, as `tandem up` names it."""
    shutil.copytree(tiny_repository, tmp_path / "models")
    with socket.socket() as other:
        # Another process may listen there already; the port is taken either way.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 7450))
        except OSError:
            pass
        else:
            other.listen()
        places = {"--data": "data", "--model-repository": "models"}
        options = [part for option, name in places.items() for part in (option, tmp_path / name)]
        fixed = [each for each in UP if each != "--free-ports"]
        ran = subprocess.run(
            [*fixed, "--checkpoint", str(tiny_checkpoint), *map(str, options)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert ran.returncode == 1
    assert "7450 (HTTP)" in " ".join(ran.stderr.split())
    assert "or give --free-ports" in " ".join(ran.stderr.split())


def test_merged_services_have_no_certificates_of_their_own(tmp_path: Path) -> None:
    """Each would need another one in the same process."""
    data = tmp_path / "data"
    ran = subprocess.run(
        [sys.executable, "-m", "tandem.cli", "up", "--merged", "--tls", "--data", str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert "leave out --merged" in " ".join(ran.stderr.split())
