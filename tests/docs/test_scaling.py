"""docs/scaling.md: its plan is what its own lines compute."""

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_the_plan_prints_what_the_page_says() -> None:
    [(lines, said)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(lines, {})

    assert printed.getvalue() == said
