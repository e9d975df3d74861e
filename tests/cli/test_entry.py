"""The `tandem` command on a machine as it is found."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from tandem.cli.entry import main; main()"]
ROOT = Path(__file__).parents[2]


def run(*arguments: str, closed: tuple[int, ...] = (), **variables: str) -> tuple[int, str]:
    """Returns the status and all that it says, started with those standard streams closed."""
    environment = os.environ | variables
    # By a shell: Python that runs between fork and exec can abort in a process with gRPC's threads.
    closing = "".join(f" {number}>&-" for number in closed)
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@"{closing}', "sh", *COMMAND, *arguments],
        env={key: value for key, value in environment.items() if value},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return ended.returncode, ended.stdout.decode()


def test_odd_variables_end_no_command(tmp_path: Path) -> None:
    """No home, no such locale, no such folder for temporary files, a terminal without ways."""
    status, said = run(
        *("models", "list", "--model-repository", str(tmp_path / "größer[/x].json")),
        HOME="",
        LC_ALL="xx_YY.ISO-8859-77",
        TMPDIR=str(tmp_path / "gone"),
        TERM="dumb",
        COLUMNS="-3",
        PYTHONIOENCODING="ascii",
        PYTHONOPTIMIZE="2",
        PYTHONSTARTUP="/nowhere",
        PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="cpp",
    )

    assert status in (1, 2)
    assert "Traceback" not in said
    assert "[/x].json" in said


# All three at once show what each of them does.
@pytest.mark.parametrize(
    "closed",
    [*(pytest.param((each,), marks=pytest.mark.slow) for each in (0, 2)), (1,), (0, 1, 2)],
)
def test_closed_streams_end_no_command(closed: tuple[int, ...]) -> None:
    """Its status is what it was, and nothing that is opened takes the number of one."""
    status, said = run("--help", closed=closed)

    assert status == 0
    assert "Traceback" not in said


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version") == (0, f"tandem {version('tandem-search')}\n")


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    """Installed without its extra it says which, and no traceback."""
    program = "import sys; sys.modules['typer'] = None; from tandem.cli.entry import main; main()"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ended.returncode == 1
    assert ended.stderr == ("tandem needs typer: pip install tandem-search\n")


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("train", "torch", "lab"),
        ("evaluate", "matplotlib", "lab"),
        ("models add", "torch", "models"),
        ("certificates", "cryptography", "local"),
    ],
)
def test_the_extra_that_a_command_needs_is_named(
    tmp_path: Path, command: str, package: str, extra: str
) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = {command.split()!r}; "
        "from tandem.cli.entry import main; main()"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )

    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    needed = f"tandem {command} needs the extra `{extra}` ({package} is not installed)"
    assert line.startswith(needed)
    assert line.endswith(f": pip install 'tandem-search[{extra}]'")


def test_a_deleted_working_folder_is_reported(tmp_path: Path) -> None:
    """Relative paths would go by it."""
    gone = tmp_path / "gone"
    program = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); {COMMAND[-1]}"
    gone.mkdir()

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ended.returncode == 1
    assert ended.stderr.startswith("tandem: the folder it was started in is gone")
