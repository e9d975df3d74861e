"""Runs every command of the README and of docs/models.md; targets of make are parsed."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.records import Record
from tandem.lab.evaluation.gallery import DIRECTIONS
from tandem.lab.evaluation.reports.report import BE, Ranking, Report
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.stack.stack import LocalStack
from tests.support.gateway_svc.own_process import gateway_process

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/models.md"]
# So that a test need not take minutes: the last value of an option is the one that counts.
SMALLER = {
    "ingest": ["--count", "8", "--index", "readme"],
    "evaluate": ["--count", "8", "--query-count", "4"],
    "evaluate --checkpoint": ["--count", "8"],
}


def commands() -> list[str]:
    """Returns the lines of the pages' shell blocks, without comments."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(filter(None, lines)))


def of_kind(start: str) -> list[str]:
    """Returns the commands that begin with `start`."""
    return [command for command in commands() if command.startswith(start)]


def test_the_readme_has_the_two_commands() -> None:
    """The parser finds what is surely there, so it would find the rest."""
    assert {"make demo", "make test"} <= set(commands())


def test_no_command_is_of_another_kind() -> None:
    """A new kind of command needs a test of its own here."""
    kinds = ("make ", "tandem ", "source ", "curl ")
    assert [command for command in commands() if not command.startswith(kinds)] == []


def test_a_fresh_shell_finds_every_program_as_the_page_says(tmp_path: Path) -> None:
    """After its line that activates `.venv`, and not before."""
    [activate] = of_kind("source ")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    programs = {command.split()[0] for command in commands()} - {"make", "source", "curl"}
    asked = "; ".join(f"command -v {program}" for program in sorted(programs))

    def found(line: str) -> list[str]:
        shell = ["env", "-i", "PATH=/usr/bin:/bin", "bash", "--noprofile", "--norc", "-c"]
        ran = subprocess.run(
            [*shell, f"{line}; {asked}"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return ran.stdout.split()

    assert {"tandem"} <= programs
    assert [Path(path).parent.resolve() for path in found(activate)] == [
        Path(sys.prefix, "bin").resolve()
    ] * len(programs)
    assert not [path for path in found(":") if path.startswith(sys.prefix)]


@pytest.mark.parametrize("command", of_kind("make "))
def test_make_knows_the_target(command: str) -> None:
    """What the targets do is run by the demo, by CI and by this very suite."""
    dry_run = subprocess.run(
        ["make", "-n", *shlex.split(command)[1:]], cwd=ROOT, capture_output=True, check=False
    )
    assert dry_run.returncode == 0, dry_run.stderr.decode()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", of_kind("curl "))
async def test_the_gateway_answers(command: str, stack: LocalStack, scenes_index: str) -> None:
    """Run as shown, at the address of a gateway before the tests' own services."""
    async with gateway_process(stack.address) as gateway:
        port = (await gateway.event("listening"))["port"]
        words = shlex.split(command.replace("localhost:7450", f"127.0.0.1:{port}"))
        ran = await asyncio.create_subprocess_exec(
            *words, "--silent", "--fail-with-body", "--noproxy", "*", stdout=PIPE
        )
        answer, _ = await ran.communicate()

    assert ran.returncode == 0, answer
    assert len(json.loads(answer)["items"]) == 10


@pytest.mark.parametrize("command", of_kind("tandem "))
def test_a_command_runs(
    command: str,
    stack: LocalStack,
    scenes_index: str,
    records: list[Record],
    model_repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run as shown, against the tests' own addresses and in small; `up` has its own test.

    In this process, as each takes a second to start; test_commands has processes of its own.
    """
    words = shlex.split(command)[1:]
    if words[0] == "up":
        return
    arguments = [*words, *SMALLER.get(" ".join(words[:2]), SMALLER.get(words[0], []))]
    if words[0] in ("ingest", "search") or words == ["evaluate"]:
        arguments += ["--address", stack.address]
    if words[0] == "train":
        arguments = ["train", "tiny", "--folder", str(tmp_path)]
    if words[0] == "models":
        arguments += ["--model-repository", str(tmp_path / "model_repository")]
    # What the commands before it would have left.
    shutil.copytree(model_repository, tmp_path / "model_repository")
    shutil.copytree(default_checkpoint(), tmp_path / "checkpoints/default")
    rankings = tuple(Ranking(name, BE, 0, (1, 2)) for name in DIRECTIONS)
    report = Report({}, {name: ["en", "en"] for name in DIRECTIONS}, rankings, {})
    report.write(tmp_path / "reports/default/report.json")
    # As the search before it saved it.
    for found in re.findall(r"--image (\S+)", command):
        (tmp_path / found).parent.mkdir()
        (tmp_path / found).write_bytes(records[0].image.read())

    monkeypatch.chdir(tmp_path)

    ran = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)

    assert ran.exit_code == 0, (ran.output, ran.exception)
