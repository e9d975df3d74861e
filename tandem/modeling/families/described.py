"""Describes a published model, once its family has read its parts."""

from tokenizers import Tokenizer
from torch import nn

from tandem.modeling.families.loaded_model import parameter_count
from tandem.modeling.families.published_model import (
    BiEncoderParts,
    CrossEncoderParts,
    PublishedModel,
    RegionJointParts,
)
from tandem.modeling.published.files import TOKENIZER
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.licence import licence_notes


def described(
    folder: PublishedFolder,
    family: str,
    architecture: str,
    tokenizer: Tokenizer,
    *modules: nn.Module,
    notes: tuple[str, ...] = (),
    bi_encoder: BiEncoderParts | None = None,
    cross_encoder: CrossEncoderParts | None = None,
    region_joint: RegionJointParts | None = None,
) -> PublishedModel:
    """Returns the model of these parts, whose weights are those of `modules`.

    Call it after the last file is read.
    """
    licence = folder.licence()
    return PublishedModel(
        family=family,
        architecture=architecture,
        licence=licence,
        parameter_count=parameter_count(*modules),
        files_sha256=dict(folder.sha256s()),
        tokenizers={TOKENIZER: tokenizer},
        bi_encoder=bi_encoder,
        cross_encoder=cross_encoder,
        region_joint=region_joint,
        notes=(*notes, *licence_notes(licence)),
    )
