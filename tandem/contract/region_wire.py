"""Converts a detector's regions between protobuf messages and our own type."""

from __future__ import annotations

from tandem.contract.regions import RegionContent, checked_region_content
from tandem.contract.same_fields import of_same_fields, same_fields
from tandem.v1 import content_pb2


def regions_to_proto(content: RegionContent) -> content_pb2.RegionContent:
    """Raises RegionsInvalid for regions that do not fit their counts."""
    return content_pb2.RegionContent(**same_fields(checked_region_content(content)))


def regions_from_proto(message: content_pb2.RegionContent) -> RegionContent:
    """Raises RegionsInvalid for regions that do not fit their counts."""
    return checked_region_content(of_same_fields(RegionContent, message))
