"""`tandem up --one-process`: the public API from one process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
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
        try:
            assert found, line
            with Client(found[1], timeout_seconds=60.0) as client:
                items = [(f"picture-{n}", encoded(noise(n), "PNG")) for n in range(3)]
                assert all(each.error is None for each in client.ingest(items, index_id="noise"))
                served = client.search("two dogs", index_id="noise")
        finally:
            process.send_signal(signal.SIGTERM)
            rest, errors = process.communicate()
    assert process.returncode == 0, errors
    assert rest.splitlines()[-1] == "stopped"

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
