"""`tandem certificates`: makes an authority, and a certificate for each Compose container."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.terminal.console import out
from tandem.stack.certificates import LocalAuthority

# Each service of the Compose file, and the name in its certificate that others accept.
CONTAINERS: Mapping[str, str] = {
    "orchestrator": "orchestrator",
    "gateway": "gateway",
    "encoder": "encoder",
    "index-0": "index",
    "index-1": "index",
    "rerank-0": "rerank",
    "rerank-1": "rerank",
    "triton": "triton",
}


def certificates(
    folder: Annotated[Path, typer.Argument(help="output folder; an existing authority stays")],
) -> None:
    """Write new certificates for the containers.

    They are for deploy/compose.tls.yaml, and valid for 30 days. Running services reload them.
    Callers trust the folder's ca.crt.
    """
    authority = LocalAuthority(folder)
    for name, kind in CONTAINERS.items():
        authority.issue(name, kind)
    out.print(f"{folder}: certificates for {', '.join(CONTAINERS)}")
    out.print(f"callers trust them by: export TANDEM_AUTHORITY_FILE={authority.authority_file}")
