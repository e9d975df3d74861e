"""What the backup's CronJob and the restore Job run, run: on a real store, by the real command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.local.item_store.item_store import ItemStore
from tandem.stages.item_write import Upsert
from tests.support.deploy.rendered import KUBERNETES, ROOT, parsed, rendered
from tests.support.deploy.workloads import workloads
from tests.support.item_store.made_items import FINGERPRINT, text_item

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """A shard's two volumes, as `store` and `backups`; its store has five items."""
    store = ItemStore.open(tmp_path / "store" / "shard", 0, 1)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item(i) for i in "abcde"])])
    store.close()
    (tmp_path / "backups").mkdir()
    return tmp_path


def in_the_pod(script: str, volumes: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script of a manifest with the volumes where they are here."""
    commands = volumes / "commands"
    commands.mkdir(exist_ok=True)
    tandem = commands / "tandem"
    tandem.write_text(f'#!/bin/sh\nexec {sys.executable} -m tandem.cli "$@"\n')
    tandem.chmod(0o755)
    for name in ("store", "backups"):
        script = script.replace(f"/{name}", f"{volumes / name}")
    return subprocess.run(
        ["sh", "-ec", script],
        env={"PATH": f"{commands}:{os.defpath}", "PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def backup_script() -> str:
    """Returns what the CronJob runs in a shard's container."""
    (job,) = (each for each in workloads(rendered("full")) if each.name == "CronJob/backup")
    *before, script = job.pod["containers"][0]["args"]
    assert before[-2:] == ["sh", "-ec"]
    assert isinstance(script, str)
    return script


def restore_script() -> str:
    """Returns what the Job runs."""
    (job,) = parsed((KUBERNETES / "components" / "backup" / "restore.yaml").read_text())
    (script,) = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert isinstance(script, str)
    return script


def test_two_weeks_of_backups_are_kept_and_one_restores(volumes: Path) -> None:
    backups, shard = volumes / "backups", volumes / "store" / "shard"
    for name in ("2025-W50", "2025-W51", "2025-W52", "notes"):
        (backups / name).mkdir()

    for _ in range(2):
        backed_up = in_the_pod(backup_script(), volumes)
        assert backed_up.returncode == 0, backed_up.stderr

    kept = sorted(path.name for path in backups.iterdir())
    assert kept[0] == "2025-W52"
    assert kept[2:] == ["notes"]
    names = sorted(str(path.relative_to(backups)) for path in backups.glob("*/*/*/*.json"))
    assert [name.rpartition("/")[2] for name in names] == ["000001.json", "000002.json"]

    restored = in_the_pod(restore_script(), volumes, BACKUP=names[-1])

    assert restored.returncode == 0, restored.stderr
    store = ItemStore.open(shard, 0, 1)
    store.close()
    assert len(list(shard.parent.glob("shard.*"))) == 1, "the old store is not moved aside"


def test_a_failed_backup_removes_no_older_one(volumes: Path) -> None:
    for week in range(10, 19):
        (volumes / "backups" / f"2025-W{week}").mkdir()
    (volumes / "store" / "shard").rename(volumes / "store" / "lost")

    backed_up = in_the_pod(backup_script(), volumes)

    assert backed_up.returncode != 0
    assert len(list((volumes / "backups").glob("2025-W*"))) == 9
