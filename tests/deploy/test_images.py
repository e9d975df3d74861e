"""deploy/images: what the Dockerfiles copy is there, and what they install is enough.

No container engine is needed: test_built_images.py runs what was built.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.deploy.rendered import ROOT, installed_command
from tests.support.images.containers import IMAGES

IMAGE_FOLDER = ROOT / "deploy" / "images"
DOCKERFILES = sorted(IMAGE_FOLDER.glob("*.Dockerfile"))
# Without the packages of the environment that runs the tests.
PYTHON = (sys.executable, "-S")
MODULES = ("encoder_svc", "index_svc", "orchestrator_svc", "rerank_svc")
_COPY = re.compile(r"^COPY (?!--from)((?:--\S+ )*)(.+) \S+$", re.MULTILINE)


def copied(dockerfile: Path) -> list[str]:
    """Returns the paths that it copies out of the build's context."""
    text = dockerfile.read_text(encoding="utf-8")
    return [source for _, sources in _COPY.findall(text) for source in sources.split()]


def ignore_rules() -> tuple[list[str], list[str]]:
    """Returns what .dockerignore leaves out, and what it takes back in."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    return (
        [rule for rule in rules if not rule.startswith("!")],
        [rule[1:] for rule in rules if rule.startswith("!")],
    )


@dataclass(frozen=True, slots=True)
class Image:
    """A folder with the program as the service's image has it, and one with its packages."""

    app: Path
    packages: Path

    def run(self, *command: str | Path, path: str = os.defpath) -> subprocess.CompletedProcess[str]:
        """Runs a command that sees nothing but the standard library and what the image has."""
        return subprocess.run(
            command,
            cwd=self.app.parent,
            env={"PATH": path, "PYTHONPATH": f"{self.app}:{self.packages}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image without its operating system: files copied, packages linked."""
    root = tmp_path_factory.mktemp("image")
    left_out, _ = ignore_rules()
    for folder in (*MODULES, "gateway_svc", "merged_svc", "tandem"):
        assert folder in copied(IMAGE_FOLDER / "service.Dockerfile")
        caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / "app" / folder, ignore=caches)
    for rule in left_out:
        if "*" not in rule:
            shutil.rmtree(root / "app" / rule)
    packages = root / "packages"
    packages.mkdir()
    for name in locked():
        for path in top_level_paths(name):
            if not (packages / path.name).exists():
                (packages / path.name).symlink_to(path)
    return Image(root / "app", packages)


def top_level_paths(name: str) -> Iterator[Path]:
    """Yields the folders and files that an installed package lays into site-packages."""
    try:
        files = importlib.metadata.distribution(name).files or []
    except importlib.metadata.PackageNotFoundError:
        return  # of another platform
    for first in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        yield Path(str(importlib.metadata.distribution(name).locate_file(first)))


def locked() -> set[str]:
    """Returns the names of the packages that the service's image installs."""
    text = (ROOT / "requirements" / "serve.txt").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))


def test_the_dockerfiles_are_clean() -> None:
    done = subprocess.run(
        [installed_command("hadolint"), *DOCKERFILES],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_images_copy_what_is_there_and_what_dockerignore_lets_through() -> None:
    """A build's context holds no data, no weights and no secret by accident."""
    left_out, taken = ignore_rules()
    sources = {source for dockerfile in DOCKERFILES for source in copied(dockerfile)}

    assert left_out[0] == "*"
    assert set(taken) == sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_pinned_ends_as_no_root_and_names_no_index(dockerfile: Path) -> None:
    """An exact tag in an argument, which a build may replace by a digest; a user by number.

    Where packages come from is whose builds it: pip's own setting, or an argument.
    """
    text = dockerfile.read_text(encoding="utf-8")

    (base,) = re.findall(r"^ARG \w+_IMAGE=(\S+)$", text, re.MULTILINE)
    users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)

    assert re.search(r":\d+\.\d+(\.\d+)?-[\w-]+$", base)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    assert "://" not in text


def test_make_images_builds_the_images_of_this_release_on_the_given_bases() -> None:
    given = ("PYTHON_IMAGE=python@sha256:1", "TRITON_IMAGE=a-base", "TORCH_INDEX=an-index")

    done = subprocess.run(
        ["make", "--silent", "images", "BUILDER=echo", "BUILD_FLAGS=--quiet", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    builds = done.stdout.splitlines()
    assert [re.findall(r"--tag (\S+)", build) for build in builds] == [[image] for image in IMAGES]
    assert all(build.startswith("build --quiet ") for build in builds)
    python, triton = [given[0]], [*given[1:]]
    arguments = [re.findall(r"--build-arg (\S+)", build) for build in builds]
    assert arguments == [python, python, triton]


# pip, which downloads one wheel, and says what else it is asked to do.
_PIP = """#!/bin/sh
echo "$@"
case "$*" in *download*) mkdir FOLDER/torch && printf wheel > FOLDER/torch/torch-2.13.0.whl ;; esac
"""
_WHEEL_SHA256 = hashlib.sha256(b"wheel").hexdigest()


@pytest.mark.parametrize(
    ("index", "sha256", "stops_by"),
    [
        ("an-index", _WHEEL_SHA256, ""),
        ("an-index", "", "give --build-arg TORCH_SHA256="),
        ("an-index", hashlib.sha256(b"another wheel").hexdigest(), "did NOT match"),
    ],
)
def test_torch_is_the_pinned_wheel_of_the_given_index(
    index: str, sha256: str, stops_by: str, tmp_path: Path
) -> None:
    """Without either the build stops before pip and says what to give, and installs no other."""
    text = (IMAGE_FOLDER / "triton.Dockerfile").read_text(encoding="utf-8")
    (command,) = re.findall(r"^RUN (: .*?[^\\])$", text, re.MULTILINE | re.DOTALL)
    pip = tmp_path / "python3"
    pip.write_text(_PIP.replace("FOLDER", str(tmp_path)))
    pip.chmod(0o755)
    (tmp_path / "torch.txt").touch()
    given = {"TORCH_INDEX": index, "TORCH_SHA256": sha256, "TORCH_VERSION": "2.13.0"}

    ran = subprocess.run(
        ["sh", "-c", command.replace("\\\n", "").replace("/tmp/", f"{tmp_path}/")],
        env={"PATH": f"{tmp_path}:{os.defpath}"} | given,
        capture_output=True,
        text=True,
        check=False,
    )

    assert not re.search(r"^ARG TORCH_(INDEX|SHA256)=", text, re.MULTILINE)
    assert (ran.returncode == 0) == (stops_by == "")
    assert stops_by in ran.stderr
    assert ("--index-url an-index torch==2.13.0" in ran.stdout) == bool(index and sha256)
    assert ("pip install" in ran.stdout) == (stops_by == "")
    installs = [line for line in ran.stdout.splitlines() if "pip install" in line]
    assert all("--no-deps" in line for line in installs)
    assert all("--require-hashes" in line for line in installs if "-r " in line)


def test_compose_passes_on_the_build_arguments_of_torch() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))

    handed_on = compose["services"]["triton"]["build"]["args"]
    assert handed_on == {"TORCH_INDEX": "${TORCH_INDEX:-}", "TORCH_SHA256": "${TORCH_SHA256:-}"}


def test_both_locks_pin_the_same_versions_and_the_image_has_no_torch() -> None:
    """What the tests run is what the image has, less gigabytes that no service needs."""
    assert not {name for name in locked() if name.startswith(("torch", "nvidia", "cuda"))}
    pins = [
        dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
        for text in (
            (ROOT / "requirements" / name).read_text(encoding="utf-8")
            for name in ("serve.txt", "cpu.txt")
        )
    ]

    assert pins[0].items() <= pins[1].items()


def test_all_services_in_one_process_start_with_the_files_of_the_image(image: Image) -> None:
    """It prints the orchestrator's settings, and HTTP has its packages."""
    done = image.run(*PYTHON, "-m", "merged_svc", "--settings")
    http = image.run(*PYTHON, "-c", "import gateway_svc.serving")

    assert done.returncode == 0, done.stderr
    assert "`ORCHESTRATOR_ADDRESS`" in done.stdout
    assert http.returncode == 0, http.stderr


def test_the_tandem_command_of_the_image_runs(image: Image, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(PYTHON)} "$@"\n')
    python.chmod(0o755)
    path = f"{tmp_path}:{os.defpath}"

    done = image.run("sh", IMAGE_FOLDER / "tandem.sh", "health", "127.0.0.1:1", path=path)

    assert done.returncode == 1
    assert "127.0.0.1:1: UNAVAILABLE" in done.stderr


def test_files_outside_the_image_are_not_found(image: Image) -> None:
    """The positive control: torch is installed for the tests, and not in the image."""
    done = image.run(*PYTHON, "-c", "import numpy, torch")

    assert done.returncode == 1
    assert "No module named 'torch'" in done.stderr
