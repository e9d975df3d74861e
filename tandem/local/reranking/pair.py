"""Builds the (text, image) pairs that the cross-encoder reads."""

from dataclasses import dataclass

from tandem.contract.content import ImageTokens, TextTokens, Tokens
from tandem.errors import TokensInvalid
from tandem.model_io.repository.manifest import Manifest


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A text and an image, of which either is the query."""

    text: TextTokens
    image: ImageTokens


class QueryPairs:
    """Builds the pairs of one query, which it checks once, with the first of them."""

    def __init__(self, query: Tokens, manifest: Manifest) -> None:
        self._query = query
        self._manifest = manifest
        self._is_checked = False

    def pair(self, candidate: Tokens, item_id: str = "") -> Pair:
        """Returns the pair; raises TokensInvalid if the manifest's model cannot read it.

        The error names the item, if it is one. Otherwise one bad pair would fail its whole batch.
        """
        match self._query, candidate:
            case (TextTokens() as text, ImageTokens() as image) | (
                ImageTokens() as image,
                TextTokens() as text,
            ):
                if not self._is_checked:
                    _check(self._query, self._manifest)
                    self._is_checked = True
                _check(candidate, self._manifest)
                return Pair(text, image)
            case _:
                raise TokensInvalid.of_same_modality(item_id)


def _check(tokens: Tokens, manifest: Manifest) -> None:
    if isinstance(tokens, TextTokens):
        _check_text(tokens, manifest)
    else:
        _check_image(tokens, manifest)


def _check_text(text: TextTokens, manifest: Manifest) -> None:
    rules = manifest.pair_text
    if rules is None or text.is_empty:
        raise TokensInvalid(why=f"a text has none, and {manifest.family} scores no pairs without")
    if len(text.ids) > rules.max_tokens:
        raise TokensInvalid(
            why=f"a text has {len(text.ids)} token ids, the limit is {rules.max_tokens}"
        )
    if text.ids.max() >= rules.vocabulary_size:
        raise TokensInvalid(
            why=f"token id {text.ids.max()} is over the vocabulary of {rules.vocabulary_size}"
        )


def _check_image(image: ImageTokens, manifest: Manifest) -> None:
    expected = (manifest.image_token_count, manifest.token_width)
    shape = image.values.shape
    if manifest.regions is not None and len(shape) == 2 and 1 <= shape[0] <= expected[0]:
        shape = (expected[0], shape[1])  # a detector finds fewer in some images
    if shape != expected:
        raise TokensInvalid(
            why=f"an image has tokens of shape {image.values.shape} instead of {expected}"
        )
