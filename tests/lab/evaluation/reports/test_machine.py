"""What a report says of the machine."""

import os
import re
import subprocess
from pathlib import Path

from tandem import __version__
from tandem.lab.evaluation.reports.machine import machine_about

ROOT = Path(__file__).parents[4]


def test_a_report_names_processor_cores_and_commit() -> None:
    """The commit is that of this source tree, if it is one."""
    about = machine_about()

    assert about["CPU"]
    assert re.fullmatch(r"\d+ of \d+", about["cores"])
    assert int(about["cores"].split()[0]) <= (os.cpu_count() or 1)
    assert about["tandem"].startswith(__version__)
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
        head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        assert f"commit {head}" in about["tandem"]
