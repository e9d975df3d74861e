"""The code in clients/, and the same generated again."""

import subprocess
import sys
from pathlib import Path

from tests.support.clients.debian import with_programs

ROOT = Path(__file__).parents[3]


def stale_files(language: str, folder: Path, count: int) -> list[str]:
    """Generates a client's code into `folder`; names the files of its gen/ that are not the same.

    `count` is the number of files that the protos and the plugins give.
    """
    buf = Path(sys.executable).with_name("buf")
    template = f"clients/{language}/buf.gen.yaml"
    subprocess.run(
        [buf, "generate", "--template", template, "--output", folder],
        cwd=ROOT,
        env=with_programs(),
        check=True,
        timeout=120,
    )
    made, kept = (_contents(root / "clients" / language / "gen") for root in (folder, ROOT))
    assert len(made) == count
    return sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))


def _contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
