"""Converts a detector's regions between protobuf messages and our own type."""

from __future__ import annotations

from tandem.contract.regions import RegionContent, checked_region_content
from tandem.v1 import content_pb2


def regions_to_proto(content: RegionContent) -> content_pb2.RegionContent:
    """Returns the message; raises RegionsInvalid for regions that do not fit their counts."""
    checked_region_content(content)
    return content_pb2.RegionContent(
        features=content.features,
        boxes=content.boxes,
        region_count=content.region_count,
        feature_width=content.feature_width,
        image_width=content.image_width,
        image_height=content.image_height,
    )


def regions_from_proto(message: content_pb2.RegionContent) -> RegionContent:
    """Returns the content; raises RegionsInvalid for regions that do not fit their counts."""
    return checked_region_content(
        RegionContent(
            message.features,
            message.boxes,
            message.region_count,
            message.feature_width,
            message.image_width,
            message.image_height,
        )
    )
