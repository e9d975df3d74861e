"""Names the index of a corpus after its folder."""

import re
import unicodedata

from tandem.cli.corpora.corpora import corpus_place

_MAX_LENGTH = 63


def index_of(corpus: str) -> str:
    """Returns the index that a corpus is stored in by default.

    That is its name for scenes and emoji; for a path, the name of the folder, in the letters that
    an index id may have, and "pictures" if none is left.
    """
    if corpus in ("scenes", "emoji"):
        return corpus
    _, path = corpus_place(corpus)
    folder = path if path.is_dir() else path.parent
    letters = unicodedata.normalize("NFKD", folder.name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9_]+", "-", letters)[:_MAX_LENGTH].strip("-_") or "pictures"
