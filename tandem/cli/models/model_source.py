"""Reads models by a hub name or folder. It imports torch, so import it late."""

from pathlib import Path

from tandem.cli.user_path import user_path
from tandem.lab.zoo.checkpoint import is_zoo_checkpoint
from tandem.lab.zoo.served import read_zoo_model
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import is_published_folder, read_published_model
from tandem.modeling.published.files import published_folder


def is_published(folder: Path) -> bool:
    """Returns whether it is the folder of a published model or of the zoo's."""
    return is_published_folder(folder) or is_zoo_checkpoint(folder)


def read_model(name: str, revision: str | None, image_encoder: str | None) -> PublishedModel:
    """Returns the model; raises ValueError for options that it has no use for."""
    if user_path(name).is_dir() and is_zoo_checkpoint(user_path(name)):
        if revision is not None or image_encoder is not None:
            raise ValueError(f"--revision, --image-encoder: {name} is a model of the zoo")
        return read_zoo_model(user_path(name))
    image_folder = None if image_encoder is None else _folder(image_encoder)
    if revision is not None and user_path(name).is_dir():
        raise ValueError(f"--revision: {name} is a folder; only a model of the hub has revisions")
    folder = _folder(name) if revision is None else published_folder(name, revision)
    return read_published_model(folder, image_folder)


def _folder(name: str) -> Path:
    if user_path(name).is_dir():
        return user_path(name)
    hub_name, _, revision = name.partition("@")
    return published_folder(hub_name, revision or None)
