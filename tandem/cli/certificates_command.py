"""`tandem certificates`: an authority, and a certificate for each container of Compose."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.console import out

# Each service of the Compose file, and the kind of process by which others let it in.
CONTAINERS: Mapping[str, str] = {
    "orchestrator": "orchestrator",
    "encoder": "encoder",
    "index-0": "index",
    "index-1": "index",
    "rerank-0": "rerank",
    "rerank-1": "rerank",
    "triton": "triton",
}


def certificates(
    folder: Annotated[Path, typer.Argument(help="where they go; kept from the last time")],
) -> None:
    """Writes new certificates for the containers of deploy/compose.tls.yaml, good for 30 days.

    Services take up new ones while they run. Callers trust the folder's ca.crt.
    """
    # Here, not above: a service's image has this command line, and no cryptography.
    from tandem.local.certificates import LocalAuthority

    authority = LocalAuthority(folder)
    for name, kind in CONTAINERS.items():
        authority.issue(name, kind)
    out.print(f"{folder}: certificates for {', '.join(CONTAINERS)}")
    out.print(f"callers trust them by: export TANDEM_AUTHORITY_FILE={authority.authority_file}")
