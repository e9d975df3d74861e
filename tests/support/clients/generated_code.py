"""The code that `make clients` generates for each folder of clients/."""

import subprocess
import sys
from pathlib import Path

from tests.support.clients.debian import with_programs

ROOT = Path(__file__).parents[3]


def generate(language: str, folder: Path) -> None:
    """Generates a client's code as `make clients` does, into `folder`."""
    buf = Path(sys.executable).with_name("buf")
    subprocess.run(
        [buf, "generate", "--output", folder],
        cwd=ROOT / "clients" / language,
        env=with_programs(),
        check=True,
        timeout=120,
    )
