"""Lists the numbers that a recipe's fields may be, so that a wrong one is refused by its name."""

from collections.abc import Mapping
from typing import Any, Final

from tandem.model_io.json_object import within

_MANY: Final = 10_000_000
_SHARE: Final = (0.0, 1.0)
_RATE: Final = (0.0, 1.0)

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "seed": (0, 2**63 - 1),
    "width": (1, 65_536),
    "layer_count": (1, 1_000),
    "head_count": (1, 65_536),
    "vocabulary_size": (1, _MANY),
    "backbone_batch_size": (1, _MANY),
    "backbone_learning_rate": _RATE,
    "round_count": (1, _MANY),
    "accumulation_step_count": (1, _MANY),
    "be_batch_size": (2, _MANY),
    "image_size": (16, 8_192),
    "view_count": (1, 100),
    "view_stretch": (0.0, 1.0),
    "embedding_width": (0, 65_536),
    "head_width": (8, 65_536),
    "head_dropout": (0.0, 0.99),
    "head_learning_rate": _RATE,
    "matcher_width": (0, 65_536),
    "late_learning_rate": _RATE,
    "word_drop_share": (0.0, 0.9),
    "matcher_batch_size": (2, _MANY),
    "matcher_learning_rate": _RATE,
    "matcher_neighbour_count": (1, _MANY),
    "ce_family_count": (2, _MANY),
    "softmax_temperature": (1e-3, 100.0),
    "sibling_negative_share": _SHARE,
    "learning_rate": _RATE,
    "weight_decay": (0.0, 1.0),
    "adam_epsilon": (0.0, 1.0),
    "adam_beta2": (0.0, 0.999999),
    "dropout": (0.0, 0.99),
    "margin": (0.0, 2.0),
    "pair_margin": (0.0, 1.0),
    "gradient_clip_norm": (1e-6, 1e6),
    "dev_family_count": (1, _MANY),
    "dev_every_round_count": (1, _MANY),
    "mined_neighbour_count": (1, _MANY),
    "mined_negative_share": _SHARE,
    "ance_batch_size": (1, _MANY),
    "ance_negative_count": (1, _MANY),
    "mlm_batch_size": (1, _MANY),
    "mlm_masked_share": _SHARE,
}
_COUNTS: Final = ("_count", "_per_round", "_size")


def check_ranges(fields: Mapping[str, Any]) -> None:
    """Raises ValueError naming the first field with a number outside its range.

    A count without a range of its own is at least 0.
    """
    for name, value in fields.items():
        if name in _RANGES:
            within(name, value, *_RANGES[name])
        elif name.endswith(_COUNTS):
            within(name, value, 0, _MANY)
