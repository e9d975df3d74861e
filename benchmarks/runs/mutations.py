"""Plants one fault at a time and tells which the quick tests find.

    python -m benchmarks.runs.mutations [--commit HEAD] [--kept build/mutations.jsonl] [NAME ...]

Each fault of `benchmarks/support/faults.py` is planted in a work tree in a temporary folder, where
the tests that reach it run until one fails. That test then runs without the fault: if it fails
too, it says nothing. Outcomes are kept, so that another run continues. A fault whose code is no
longer found, or found twice, is named as such.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.structure import product_files, tracked
from benchmarks.support.faults import FAULTS, Fault

_TIMEOUT_SECONDS: Final = 420
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"),
    *("-m", "not slow", "--timeout", "90"),
)


@contextmanager
def work_tree(commit: str) -> Iterator[Path]:
    """Yields a work tree of the commit, which nothing else uses."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git = ("git", "worktree")
        subprocess.run([*git, "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def places(fault: Fault, texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns each file that has the fault's code, with its text once the fault is planted."""
    return [
        (path, planted)
        for path, text in texts.items()
        for found in fault.pattern.finditer(text)
        for planted in (text[: found.start()] + fault.wrong + text[found.end() :],)
    ]


def tests_of(fault: Fault, paths: Sequence[str]) -> list[str]:
    """Returns the test files whose names begin as the fault says, in the order that it names."""
    wanted = [re.compile(f"test_(?:{each})") for each in fault.tests.split("|")]
    found = [path for each in wanted for path in paths if each.match(Path(path).name)]
    return list(dict.fromkeys(found))


def outcome(fault: Fault, tree: Path) -> str:
    """Returns what the tests say of the fault."""
    texts = {path: (tree / path).read_text(encoding="utf-8") for path in product_files(tree)}
    found = places(fault, texts)
    if len(found) != 1:
        return f"code found {len(found)} times"
    tests = tests_of(fault, tracked(tree, "tests/**/test_*.py"))
    if not tests:
        return "no tests"
    path, planted = found[0]
    (tree / path).write_text(planted, encoding="utf-8")
    try:
        finished = _run(tree, tests)
    finally:
        (tree / path).write_text(texts[path], encoding="utf-8")
    if finished is None:
        return "out of time"
    if finished.returncode == 0:
        return "survived"
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", finished.stdout, re.MULTILINE)
    again = _run(tree, [failed[1]]) if failed else None
    if failed is None or again is None or again.returncode:
        return f"unclear: {finished.stdout[-300:]!r}"
    return f"killed by {failed[1].removeprefix('tests/')}"


def _run(tree: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    environment = os.environ | {"PYTHONPATH": str(tree)}
    try:
        return subprocess.run(
            [*_PYTEST, *tests],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None


def table(outcomes: Mapping[str, str]) -> str:
    """Returns the outcomes as Markdown, after a line of their counts."""
    counts = Counter(each.split()[0].rstrip(":") for each in outcomes.values())
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    rows = [f"| {name} | {each} |" for name, each in outcomes.items()]
    return "\n".join([summary, "", "| fault | outcome |", "| --- | --- |", *rows])


def main() -> None:
    """Runs what is not kept yet, then prints a table of all."""
    parser = argparse.ArgumentParser(description="plants faults and runs the quick tests")
    parser.add_argument("name", nargs="*", help="faults to plant; all")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--kept", type=Path, default=Path("build/mutations.jsonl"))
    asked = parser.parse_args()
    asked.kept.parent.mkdir(parents=True, exist_ok=True)
    asked.kept.touch()
    lines = asked.kept.read_text(encoding="utf-8").splitlines()
    outcomes: dict[str, str] = dict(json.loads(line) for line in lines)
    with work_tree(asked.commit) as tree, asked.kept.open("a", encoding="utf-8") as kept:
        for fault in FAULTS:
            if fault.name in outcomes or (asked.name and fault.name not in asked.name):
                continue
            outcomes[fault.name] = outcome(fault, tree)
            print(fault.name, "-", outcomes[fault.name], file=sys.stderr, flush=True)
            kept.write(json.dumps([fault.name, outcomes[fault.name]]) + "\n")
            kept.flush()
    print(table(outcomes))


if __name__ == "__main__":
    main()
