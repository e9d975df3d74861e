"""Describes a published cross-encoder alone, once its family has read it."""

from tokenizers import Tokenizer
from torch import nn

from tandem.modeling.families.loaded_model import parameter_count
from tandem.modeling.families.published_model import CrossEncoderParts, PublishedModel
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.licence import licence_notes


def published_cross_encoder(
    folder: PublishedFolder,
    family: str,
    model: nn.Module,
    parts: CrossEncoderParts,
    tokenizer: Tokenizer,
    notes: tuple[str, ...] = (),
) -> PublishedModel:
    """Returns a model without a bi-encoder; call it after the last file is read.

    `model` is of the class of transformers that the folder names.
    """
    licence = folder.licence()
    return PublishedModel(
        family=family,
        architecture=type(model).__name__,
        licence=licence,
        parameter_count=parameter_count(model),
        files_sha256=dict(folder.sha256s()),
        tokenizers={parts.text.tokenizer: tokenizer},
        bi_encoder=None,
        cross_encoder=parts,
        notes=(*notes, *licence_notes(licence)),
    )
