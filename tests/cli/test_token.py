"""`tandem token new`: what it prints is what the services take."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.chassis.access.tokens import Scope, TokenFile
from tandem.cli.app import app
from tandem.errors import PermissionDenied


@pytest.mark.parametrize("name", ["team-a", 'with "quotes" and ü'])
def test_the_lines_let_the_token_in(tmp_path: Path, name: str) -> None:
    options = ["--scope", "search", "--scope", "write", "--index", "scenes"]
    rates = ["--requests-per-second", "50", "--pairs-per-second", "2000"]

    result = CliRunner().invoke(app, ["token", "new", name, *options, *rates])

    assert result.exit_code == 0
    token = result.stdout.strip()
    assert token not in result.stderr
    path = tmp_path / "tokens.toml"
    path.write_text(result.stderr)
    caller = TokenFile(path).caller_of(token)
    assert caller is not None
    assert (caller.grant.name, caller.grant.requests_per_second) == (name, 50.0)
    caller.check_scope(Scope.WRITE)
    caller.check_index("scenes")
    with pytest.raises(PermissionDenied, match="admin"):
        caller.check_scope(Scope.ADMIN)
    with pytest.raises(PermissionDenied, match="emoji"):
        caller.check_index("emoji")
