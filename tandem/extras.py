"""Names the extra of tandem-search that a missing package comes with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXTRAS: Final[Mapping[str, str]] = {
    "cryptography": "local",
    "h11": "gateway",
    "h5py": "regions",
    "httpx2": "remote",
    "matplotlib": "lab",
    "msgpack": "regions",
    "pillow_heif": "heif",
    "pyarrow": "parquet",
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
