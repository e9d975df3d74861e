"""Tandem on Ray Data: stores a dataset in an index, and resumes where it was killed."""

from tandem_ray.ingest import IngestReport, ingest
from tandem_ray.sending import Destination

__all__ = ["Destination", "IngestReport", "ingest"]
