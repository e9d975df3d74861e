"""Groups pictures that share a caption, so that none becomes a negative of the other."""

from collections.abc import Iterable, Sequence

from tandem.model_io.texts.visible_text import folded_text


def caption_groups(
    captions: Sequence[Iterable[str]], joined: Iterable[Sequence[int]] = ()
) -> list[int]:
    """Returns a group number for each picture, equal where two pictures share a caption.

    `captions` are each picture's; letter case and invisible characters make no difference. `joined`
    are pictures that belong together whatever their captions. Sharing is transitive.

    >>> caption_groups([["a dog"], ["two dogs", "a pair"], ["A pair"], ["a cat"]])
    [0, 1, 1, 3]
    >>> caption_groups([["a dog"], ["two dogs"], ["a pair"]], joined=[[0, 2]])
    [0, 1, 0]
    """
    parent = list(range(len(captions)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def join(one: int, other: int) -> None:
        first, second = sorted((root(one), root(other)))
        parent[second] = first

    first_with: dict[str, int] = {}
    for number, texts in enumerate(captions):
        for text in texts:
            join(number, first_with.setdefault(folded_text(text), number))
    for members in joined:
        for member in members:
            join(members[0], member)
    return [root(number) for number in range(len(captions))]
