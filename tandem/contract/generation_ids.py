"""Names the generations of an index: `photos` is the first of the alias `photos`, then `photos@2`.

A generation is an index of one model. Callers name the alias, or a generation, of which `photos@1`
is the first; shards store each generation as an index of its own.
"""

_MARK = "@"


def named_generation(name: str) -> str:
    """Returns the id of the generation of that name: of `photos@1`, `photos`, as shards call it."""
    return generation_id(alias_of(name), generation_number(name))


def alias_of(index_id: str) -> str:
    """Returns the name that callers use for the generation."""
    return index_id.partition(_MARK)[0]


def generation_number(index_id: str) -> int:
    """Returns which generation it is, from 1."""
    return int(index_id.partition(_MARK)[2] or 1)


def generation_id(alias: str, number: int) -> str:
    """Returns the id of the alias's generation of that number, from 1."""
    return alias if number == 1 else f"{alias}{_MARK}{number}"
