"""Options that several commands take."""

from typing import Annotated

import typer

ADDRESS = Annotated[str, typer.Option(help="host:port of the orchestrator")]
