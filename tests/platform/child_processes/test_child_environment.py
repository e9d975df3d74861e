"""Children run what is installed, whatever folder and variables they are started in."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.platform.child_processes.child_environment import (
    loopback_spared,
    module_path,
    python_command,
    python_environment,
)
from tandem.platform.child_processes.module_process import MODULE_PATH

SHADOWS = ("random", "json", "grpc", "tandem", "typing", "orchestrator_svc", "sitecustomize")
LOUD = 'raise SystemExit("the user\'s own file was run")'
ROOT = Path(__file__).parents[3]


@pytest.fixture
def shadowed(tmp_path: Path) -> Path:
    """A folder whose files have the names of modules that services import."""
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(LOUD)
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(LOUD)
    return tmp_path


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Returns all that it says."""
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return ended.stdout + ended.stderr


def test_a_service_runs_no_file_of_the_folder_it_is_started_in(
    shadowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = python_environment()
    plain = [sys.executable, "-m", "orchestrator_svc", "--settings"]
    # The control: as services were started before.
    assert "own file was run" in run(plain, shadowed, environment)

    monkeypatch.chdir(shadowed)
    monkeypatch.setenv("PYTHONPATH", f"{shadowed}:")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("PYTHONSTARTUP", str(shadowed / "random.py"))
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    monkeypatch.setenv("PYTHONIOENCODING", "nonsense")
    monkeypatch.setenv("LC_ALL", "xx_YY.ISO-8859-77")
    monkeypatch.setenv("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "cpp")
    said = run(
        python_command(["-m", "orchestrator_svc", "--settings"]), shadowed, python_environment()
    )

    assert said.startswith("| variable | type |"), said
    assert "own file was run" not in said


def test_a_child_reads_and_writes_utf_8_in_any_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    program = tmp_path / "says.py"
    program.write_text("import sys; print('größer →', sys.flags.utf8_mode)", encoding="utf-8")

    ended = subprocess.run(
        python_command([str(program)]), env=python_environment(), capture_output=True
    )

    assert ended.stdout.decode() == "größer → 1\n"


def test_installed_modules_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}::relative:.")

    path = module_path()

    assert path.index(str(Path(os.__file__).parent)) < path.index(str(tmp_path))
    assert not {"", ".", "relative"} & set(path)
    assert str(ROOT) in path
    assert json.loads(python_environment()[MODULE_PATH]) == path


def test_a_tandem_that_pythonpath_names_is_the_one_that_children_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where it is installed into its own folder while site-packages holds another."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    path = module_path()

    packages = next(number for number, each in enumerate(path) if each.endswith("site-packages"))
    assert path.index(str(Path(os.__file__).parent)) < path.index(str(ROOT)) < packages


def test_loopback_is_exempt_from_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "example.org, localhost")
    monkeypatch.delenv("NO_PROXY", raising=False)

    environment = python_environment()

    assert environment["no_proxy"] == "example.org,localhost,127.0.0.1,::1"
    assert environment["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert loopback_spared("") == environment["NO_PROXY"]


def bare_interpreters(source: str) -> list[str]:
    """Returns the lists of arguments in a program that begin with the interpreter itself."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.List)
        and node.elts
        and ast.unparse(node.elts[0]) == "sys.executable"
    ]


def test_every_python_that_is_started_is_started_so() -> None:
    """By `python_command`; the control is a command as it was once."""
    assert bare_interpreters("run([sys.executable, '-m', __name__])")
    packages = [ROOT / "tandem", *ROOT.glob("*_svc")]
    for path in (path for package in packages for path in package.rglob("*.py")):
        if path.parent.name != "child_processes":
            assert bare_interpreters(path.read_text(encoding="utf-8")) == [], path
