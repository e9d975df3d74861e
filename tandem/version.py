"""Names the version of this release, of all distributions."""

__version__ = "0.1.0"
