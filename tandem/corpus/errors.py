"""What can be wrong with a corpus on disk, by name.

CorpusError
├── CorpusFileMissing       a file or folder of the corpus is not there
├── CorpusMalformed         a file says something else than its layout allows
│   ├── PictureIsUrl        a picture is named by its address on the web
│   └── ArchiveUnsafe       an archive has in it what no corpus needs
├── CorpusExists            a corpus would be written over another
├── SplitUnknown            the corpus has no such split
├── NothingRead             the split was gone through and has no record
├── ExtraMissing            a reader needs a library that is not installed
└── PictureUnavailable      one record has no bytes to decode; known when they are read
    ├── PictureMissing      it names no picture
    ├── PictureFileMissing  it names a file that is not there
    ├── PictureOutside      its file is a link out of the corpus
    └── PictureTooLarge     there are more bytes than any picture that is taken
"""

from collections.abc import Iterable


class CorpusError(ValueError):
    """A corpus cannot be read or written; the message says where and what to do."""


class CorpusFileMissing(CorpusError):
    """A file or folder that a whole corpus rests on is not there."""


class CorpusMalformed(CorpusError):
    """A file says something else than its layout allows."""


class PictureIsUrl(CorpusMalformed):
    """A picture is named by its address on the web; nothing here fetches from there."""

    def __init__(self, *, place: str, url: str) -> None:
        super().__init__(
            f"{place} names a URL ({url[:100]}); URLs are never fetched: fetch the pictures with "
            "another program and put their file names in the URLs' place"
        )


class ArchiveUnsafe(CorpusMalformed):
    """An archive has in it what no corpus needs and an attack would use."""

    def __init__(self, *, place: str, why: str) -> None:
        super().__init__(
            f"{place} {why}, which no corpus needs; do not trust this archive, or pack it anew "
            "from plain files"
        )


class CorpusExists(CorpusError):
    """A corpus would be written over another."""


class SplitUnknown(CorpusError):
    """The corpus has no such split; the message lists those that it has."""

    def __init__(
        self, *, place: object, split: str, known: Iterable[str], left_out: str = ""
    ) -> None:
        names = sorted(set(known))
        self.place, self.split, self.known = place, split, names
        flags = f"; say {' or '.join(f'--split {name}' for name in names)}" if names else ""
        super().__init__(
            f"{place} has no picture of split {split!r}; its splits are: "
            f"{', '.join(names) or 'none'}{flags}{left_out and f' ({left_out})'}"
        )


class NothingRead(CorpusError):
    """A split was gone through and not one record came of it; the message says what was left."""


class ExtraMissing(CorpusError):
    """A reader needs a library that an optional extra installs."""

    def __init__(self, *, what: str, extra: str) -> None:
        super().__init__(f'{what}; install it with: pip install "tandem-search[{extra}]"')


class PictureUnavailable(CorpusError):
    """One record's picture has no bytes that could be decoded."""


class PictureMissing(PictureUnavailable):
    """A record has captions but names no picture."""


class PictureFileMissing(PictureUnavailable):
    """A record's picture is in a file that is not there or cannot be opened."""


class PictureOutside(PictureUnavailable):
    """A record's picture is a link that leads out of the corpus."""


class PictureTooLarge(PictureUnavailable):
    """A record's picture has more bytes than any that is taken."""

    def __init__(self, *, place: str, got: int, limit: int) -> None:
        super().__init__(f"{place} has {got:,} bytes, the limit is {limit:,}; scale it down")
