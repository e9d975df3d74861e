"""Every YAML file of deploy/ is clean, and each manifest is one that kustomize reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.deploy.rendered import ROOT

DEPLOY = ROOT / "deploy"


def test_every_file_is_clean(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("replicas: 2\nreplicas: 3\n")

    done = subprocess.run(
        [sys.executable, "-m", "yamllint", "-s", "-c", DEPLOY / ".yamllint.yaml", DEPLOY, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    told = [line for line in done.stdout.splitlines() if "error" in line or "warning" in line]
    assert len(told) == 1, done.stdout
    assert 'duplication of key "replicas"' in told[0]


def test_every_manifest_is_read_by_its_kustomization() -> None:
    """A file that nothing names is never applied; five are applied by hand, and say so."""
    unread = {
        path
        for kustomization in (DEPLOY / "kubernetes").rglob("kustomization.yaml")
        for path in kustomization.parent.iterdir()
        if path.is_file() and path.name not in {kustomization.name, *read_by(kustomization)}
    }

    assert {path.name for path in unread} == {
        "cluster.yaml",
        "milvus.yaml",
        "prometheus-adapter.yaml",
        "restore.yaml",
        "time-slicing.yaml",
    }
    for path in unread:
        assert "ot part of what kustomize builds" in path.read_text().replace("\n# ", " ")


def read_by(kustomization: Path) -> set[str]:
    """Returns the files that a kustomization names."""
    names = yaml.safe_load(kustomization.read_text(encoding="utf-8"))
    maps = names.get("configMapGenerator", [])
    return {*names.get("resources", []), *(env for each in maps for env in each.get("envs", []))}
