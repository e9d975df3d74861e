"""Defines the modalities of contents."""

import enum


class Modality(enum.Enum):
    """The modality of a content."""

    TEXT = "text"
    IMAGE = "image"

    @property
    def other(self) -> "Modality":
        """Returns the other modality, which a query of this one finds by default."""
        return Modality.IMAGE if self is Modality.TEXT else Modality.TEXT
