"""Lists the methods that combine the scores of bi-encoder and cross-encoder."""

import enum


class FusionMethod(enum.Enum):
    """The contract's methods of score fusion (Geigle et al. 2022, section 6)."""

    CROSS_ENCODER = "cross_encoder"
    ADD = "add"
    NORMALISED_ADD = "normalised_add"
    LOGIT_ADD = "logit_add"
    """Adds the logit itself, as BLIP's authors do (train_retrieval.py of salesforce/BLIP)."""
