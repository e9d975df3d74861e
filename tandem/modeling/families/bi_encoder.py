"""Describes a published bi-encoder, once its family has read its two towers."""

from tokenizers import Tokenizer

from tandem.modeling.families.loaded_model import parameter_count
from tandem.modeling.families.published_model import BiEncoderParts, PublishedModel
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.licence import licence_notes


def published_bi_encoder(
    folder: PublishedFolder,
    family: str,
    architecture: str,
    parts: BiEncoderParts,
    tokenizer: Tokenizer,
    notes: tuple[str, ...] = (),
) -> PublishedModel:
    """Returns the model of two towers, without a cross-encoder; call it once all files are read."""
    licence = folder.licence()
    return PublishedModel(
        family=family,
        architecture=architecture,
        licence=licence,
        parameter_count=parameter_count(parts.embed_text, parts.embed_image),
        files_sha256=dict(folder.sha256s()),
        tokenizers={parts.text.tokenizer: tokenizer},
        bi_encoder=parts,
        cross_encoder=None,
        notes=(*licence_notes(licence), *notes),
    )
