"""Describes a model of the zoo: which one, how large, and what it reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, get_args

from tandem.modeling.config import JointConfig
from tandem.platform.files.json_object import within

ZooName = Literal[
    "vse_pp",
    "vse_infinity",
    "scan_t2i",
    "scan_i2t",
    "scan_t2i_lse",
    "scan_i2t_lse",
    "sgr",
    "saf",
    "camp",
    "camp_gated",
    "vsrn",
    "saem",
    "camera",
    "dime_i2t",
    "dime_t2i",
]
"""The models, by name."""

TextReader = Literal["gru", "transformer"]
"""What reads the words: a GRU over a table of its own, or BERT's layers, which a published
checkpoint may start."""

_RANGES: Final = {"width": (8, 65_536), "word_width": (1, 65_536)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooConfig:
    """Describes one model of the zoo."""

    model: ZooName
    inputs: JointConfig
    """What it reads: image tokens and word pieces, and the shape of BERT's layers."""
    text_reader: TextReader = "gru"
    width: int = 1024
    """D: the width of what the model compares; other widths follow from it as in its paper."""
    word_width: int = 300
    """Of the table that a GRU reads."""

    def __post_init__(self) -> None:
        """Raises ValueError naming a field from which no model can be built."""
        for name, kind in (("model", ZooName), ("text_reader", TextReader)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(
                    f"no {name} {getattr(self, name)!r}; there are {', '.join(get_args(kind))}"
                )
        for name, (low, high) in _RANGES.items():
            within(name, getattr(self, name), low, high)
        if self.width % 8:
            raise ValueError(f"width {self.width} does not divide by 8")
        if self.model == "camera" and (self.width < 16 or self.width % max(1, self.width // 32)):
            raise ValueError(
                f"width {self.width} does not divide into camera's heads of about 32; take a "
                "multiple of 32"
            )
        if self.inputs.image_source == "efficientnet_lite0_early":
            raise ValueError(
                "image_source efficientnet_lite0_early needs the late blocks of two towers; take "
                "efficientnet_lite0"
            )

    @classmethod
    def of_fields(cls, inputs: JointConfig, fields: Mapping[str, Any]) -> Self:
        """Returns the model that the zoo's part of a config.json describes; raises ValueError."""
        try:
            return cls(inputs=inputs, **fields)
        except TypeError as error:
            raise ValueError(f"zoo: {error}") from error

    def fields(self) -> dict[str, Any]:
        """Returns the zoo's part of a config.json."""
        return {
            "model": self.model,
            "text_reader": self.text_reader,
            "width": self.width,
            "word_width": self.word_width,
        }
