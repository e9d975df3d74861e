"""Ways of making one score of the bi-encoder's and the cross-encoder's."""

import enum


class FusionMethod(enum.Enum):
    """Names are the contract's (Geigle et al. 2022, section 6)."""

    CROSS_ENCODER = "cross_encoder"
    ADD = "add"
    NORMALISED_ADD = "normalised_add"
