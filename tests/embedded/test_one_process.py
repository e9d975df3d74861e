"""`tandem up --one-process`: the public API from one process."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from tandem import Engine
from tandem.client import Client
from tests.support.model_io.pictures import encoded, noise

UP = [sys.executable, "-m", "tandem.cli", "up", "--one-process", "--free-ports", "--shards", "1"]


def test_it_serves_until_stopped_and_an_engine_opens_its_folder(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    """One process with the stores of a stack; it ends with 0, as a stack does."""
    data, repository = tmp_path / "data", tmp_path / "repository"
    places = {"--data": data, "--checkpoint": tiny_checkpoint, "--model-repository": repository}
    options = [part for option, path in places.items() for part in (option, str(path))]
    with subprocess.Popen(
        [*UP, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"serving at (\S+), metrics at http://\S+/metrics\n", line)
        http = re.fullmatch(r"HTTP: (\S+)\n", process.stdout.readline())
        try:
            assert found, line
            with Client(found[1], timeout_seconds=60.0) as client:
                items = [(f"picture-{n}", encoded(noise(n), "PNG")) for n in range(3)]
                assert all(each.error is None for each in client.ingest(items, index_id="noise"))
                served = client.search("two dogs", index_id="noise")
            assert http
            asked = urllib.request.Request(
                f"{http[1]}v1/search",
                json.dumps({"query": "two dogs", "index_id": "noise"}).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(asked, timeout=60) as answer:
                over_http = json.load(answer)
            with urllib.request.urlopen(http[1], timeout=60) as answer:
                console = answer.read()
        finally:
            process.send_signal(signal.SIGTERM)
            rest, errors = process.communicate()
    assert process.returncode == 0, errors
    assert rest.splitlines()[-1] == "stopped"
    assert "not warm yet" not in errors
    assert [each["item_id"] for each in over_http["items"]] == [
        each.item_id for each in served.items
    ]
    assert b"<title>" in console

    with Engine(data, model=repository) as engine:
        own = engine.search("two dogs", index_id="noise")
    assert [each.item_id for each in own.items] == [each.item_id for each in served.items]


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


def test_a_taken_port_is_named(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """Before the model is loaded, as `tandem up` names it."""
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
