"""Finds the files of the distribution tandem-search-demo: a model, drawings and a font."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


class DemoFilesMissing(ValueError):
    """The distribution tandem-search-demo is not installed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not installed; install it: pip install tandem-search-demo")


def demo_folder(name: str, what: str) -> Path:
    """Returns a folder inside the package, such as corpus/drawings; raises DemoFilesMissing.

    `what` says in an error what is in it.
    """
    folder = _PACKAGE / name
    if not folder.is_dir():
        raise DemoFilesMissing(what)
    return folder
