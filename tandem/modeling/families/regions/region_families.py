"""Finds the family of a folder whose model reads a detector's regions, by what lies in it."""

from collections.abc import Callable

from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.regions.m3p import WEIGHTS_NAME, m3p_weights_name, read_m3p
from tandem.modeling.families.regions.mmt_folder import is_mmt_folder, read_mmt_folder
from tandem.modeling.families.regions.oscar import read_oscar
from tandem.modeling.families.regions.uniter import read_uniter
from tandem.modeling.published.files import CONFIG, TOKENIZER
from tandem.modeling.published.folder import PublishedFolder

_OF_OSCAR, _OF_UNITER = "img_embedding.weight", "img_embeddings.img_linear.weight"


def region_reader(folder: PublishedFolder) -> Callable[[PublishedFolder], PublishedModel] | None:
    """Returns what reads the folder; None for a folder of another kind.

    The authors' configurations are BERT's and M3P has none, so weights tell which it is. Raises
    PublishedCheckpointInvalid as their readers do.
    """
    if is_mmt_folder(folder):
        return read_mmt_folder
    if not folder.has(CONFIG):
        is_m3p = folder.has(WEIGHTS_NAME) or (folder.has(TOKENIZER) and m3p_weights_name(folder))
        return read_m3p if is_m3p else None
    # Others name a family there.
    if folder.config().get("model_type") not in (None, "bert"):
        return None
    names = folder.declared_weights().keys()
    if any(name.endswith(_OF_OSCAR) for name in names):
        return read_oscar
    if any(name.endswith(_OF_UNITER) for name in names):
        return read_uniter
    return None
