"""Knows what this installation has: its version, its extras, demo files and files of deploy/."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

__version__ = "0.1.0"
"""The version of all distributions."""

_PACKAGE: Final = Path(__file__).parent

EXTRAS: Final[Mapping[str, str]] = {
    "cryptography": "local",
    "h11": "gateway",
    "h5py": "regions",
    "httpx2": "remote",
    "imagehash": "duplicates",
    "matplotlib": "lab",
    "msgpack": "regions",
    "obstore": "object-store",
    "pillow_heif": "heif",
    "psycopg": "pgvector",
    "pyarrow": "parquet",
    "pymilvus": "milvus",
    "safetensors": "models",
    "starlette": "gateway",
    "tensorboard": "lab",
    "torch": "models",
    "transformers": "models",
    "uvicorn": "gateway",
}
"""The extra of each package that is not of tandem-search itself, by the name of its import."""


class PackageMissing(ImportError):
    """A package is not installed; the message says what brings it."""

    def __init__(self, what: str, package: str, extra: str | None = None) -> None:
        extra = extra or EXTRAS.get(package)
        needs = f"the extra `{extra}` ({package} is not installed)" if extra else package
        target = f"'tandem-search[{extra}]'" if extra else "tandem-search"
        super().__init__(f"{what} needs {needs}: pip install {target}", name=package)


def missing_package(error: ModuleNotFoundError) -> str:
    """Returns the package that an import did not find; raises the error for one of our own."""
    package = (error.name or "tandem").partition(".")[0]
    if package == "tandem":
        raise error
    return package


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


def deployed_folder(name: str) -> Path:
    """Returns a folder of deploy/, such as triton/backends: a wheel has it in the package."""
    in_wheel = _PACKAGE / "deployed" / name
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / "deploy" / name
