"""What manifests tell tritonserver, a real one knows."""

from __future__ import annotations

import re
import subprocess

import yaml

from tandem.triton.install import triton_environment, wheel_folder
from tests.support.deploy.rendered import OVERLAYS, ROOT, rendered
from tests.support.deploy.workloads import workloads


def told() -> set[str]:
    """Returns every flag of every overlay and of the Compose file."""
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    arguments = list(compose["services"]["triton"]["command"][1:])
    for overlay in OVERLAYS:
        for workload in workloads(rendered(overlay)):
            for container in workload.containers():
                if container.spec.get("command") == ["tritonserver"]:
                    arguments += container.spec["args"]
    return {argument.partition("=")[0] for argument in arguments}


def test_every_flag_is_one_of_tritons() -> None:
    """A misspelt one would end the container; the pip wheel's server is older than any image."""
    wheel = wheel_folder()
    done = subprocess.run(
        [wheel / "bin" / "tritonserver", "--help"],
        env=triton_environment(wheel, 1),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr

    known = set(re.findall(r"^\s*(?:-\w, )?(--[\w-]+)", said, re.MULTILINE))

    assert "--model-control-mode" in told()
    assert told() <= known
    assert "--model-repositry" not in known
