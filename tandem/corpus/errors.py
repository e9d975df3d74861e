"""Defines the errors of a corpus on disk.

CorpusError
├── CorpusFileMissing       a file or folder of the corpus is missing
├── CorpusMalformed         a file violates its layout
│   ├── PictureIsUrl        a picture is named by a URL
│   └── ArchiveUnsafe       an archive contains what no corpus needs
├── SplitUnknown            the corpus has no such split
├── NothingRead             a split was read and gave no record
├── ExtraMissing            a reader needs a library that is not installed
├── RegionsMissing          a detector's file has no regions of an image
├── RegionsUnreadable       an image's regions violate their layout
└── PictureUnavailable      one record's picture has no bytes to decode; found when it is read
    ├── PictureMissing      the record names no picture
    ├── PictureFileMissing  the named file is missing
    ├── PictureOutside      the file is a link out of the corpus
    └── PictureTooLarge     the file exceeds the size limit
"""

from collections.abc import Iterable


class CorpusError(ValueError):
    """A corpus cannot be read or written; the message says where and what to do."""


class CorpusFileMissing(CorpusError):
    """A file or folder that the whole corpus needs is missing."""


class CorpusMalformed(CorpusError):
    """A file violates its layout."""


class PictureIsUrl(CorpusMalformed):
    """A picture is named by a URL; Tandem never fetches URLs."""

    def __init__(self, *, place: str, url: str) -> None:
        super().__init__(
            f"{place} names a URL ({url[:100]}); URLs are never fetched: download the pictures and "
            "replace the URLs by their file names"
        )


class ArchiveUnsafe(CorpusMalformed):
    """An archive contains what no corpus needs and an attack would use."""

    def __init__(self, *, place: str, why: str) -> None:
        super().__init__(
            f"{place} {why}, which no corpus needs; do not trust this archive, or pack it again "
            "from plain files"
        )


class SplitUnknown(CorpusError):
    """The corpus has no such split; the message lists those that it has."""

    def __init__(
        self, *, place: object, split: str, known: Iterable[str], left_out: str = ""
    ) -> None:
        names = sorted(set(known))
        self.place, self.split, self.known, self.left_out = place, split, names, left_out
        flags = f"; pass {' or '.join(f'--split {name}' for name in names)}" if names else ""
        splits = f"; its splits are: {', '.join(names)}" if names else ""
        super().__init__(
            f"{place} has no picture of split {split!r}{splits}{left_out and f' ({left_out})'}"
            f"{flags or '; put pictures into it, or give another folder'}"
        )


class NothingRead(CorpusError):
    """A split was read and gave no record; the message says what was left out."""


class ExtraMissing(CorpusError):
    """A reader needs a library that an optional extra installs."""

    def __init__(self, *, what: str, extra: str) -> None:
        super().__init__(f'{what}; install it with: pip install "tandem-search[{extra}]"')


class RegionsMissing(CorpusError):
    """A detector's file has no regions of an image."""

    def __init__(self, *, place: object, image_id: str) -> None:
        super().__init__(
            f"{place} has no regions of image {image_id!r}; run the detector on it, or leave the "
            "image out"
        )


class RegionsUnreadable(CorpusError):
    """An image's regions violate their layout, or are another detector's."""


class PictureUnavailable(CorpusError):
    """One record's picture has no bytes that could be decoded."""


class PictureMissing(PictureUnavailable):
    """A record has captions but names no picture."""


class PictureFileMissing(PictureUnavailable):
    """A record's picture file is missing or cannot be opened."""


class PictureOutside(PictureUnavailable):
    """A record's picture is a link that leads out of the corpus."""


class PictureTooLarge(PictureUnavailable):
    """A record's picture exceeds the size limit."""

    def __init__(self, *, place: str, got: int, limit: int) -> None:
        super().__init__(f"{place} has {got:,} bytes, the limit is {limit:,}; scale it down")
