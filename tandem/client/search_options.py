"""Spells the options of a search out in signatures, and checks them."""

import difflib
import enum
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, get_args, get_type_hints

from tandem.client.arguments import (
    checked_elements,
    checked_flag,
    checked_integer,
    checked_member,
    checked_real,
    checked_type,
)
from tandem.client.sendable import check_sendable
from tandem.contract.filtering.attribute_wire import (
    CheckedFilter,
    checked_filter,
    filter_to_proto,
)
from tandem.contract.filtering.filter_expression import parse_filter
from tandem.contract.filtering.filters import AllOf, AnyOf, Exists, InRange, Not, OneOf, StartsWith
from tandem.contract.search.query import SearchOptions

HINTS = get_type_hints(SearchOptions, include_extras=True)
"""The type and the sentence of each option, by its name."""

_Call = TypeVar("_Call", bound=Callable[..., Any])


def takes_options(call: _Call) -> _Call:
    """Spells SearchOptions out in a call's signature and docstring, for help() and notebooks."""
    signature, hints = inspect.signature(call), get_type_hints(SearchOptions)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=_default(name, hint)
        )
        for name, hint in hints.items()
    ]
    shown: Any = call
    shown.__signature__ = signature.replace(parameters=[*own, *keywords])
    shown.__annotations__ = call.__annotations__ | hints
    sentences = [f"- `{name}`: {hint.__metadata__[0]}." for name, hint in HINTS.items()]
    shown.__doc__ = "\n".join([f"{inspect.getdoc(call)}\n\n{SearchOptions.__doc__}\n", *sentences])
    return call


def checked_options(options: SearchOptions) -> dict[str, Any]:
    """Returns the options that are set, with enums for their names.

    Raises RequestMalformed for one of a wrong type, with what to send, FilterInvalid, and TypeError
    for a name that SearchOptions does not have.
    """
    if unknown := [name for name in options if name not in _CHECKS]:
        near = difflib.get_close_matches(unknown[0], _CHECKS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "SearchOptions lists those it has"
        raise TypeError(f"a search has no option {unknown[0]!r}; {hint}")
    return {
        name: _CHECKS[name](name, value) for name, value in options.items() if value is not None
    }


def _default(name: str, hint: object) -> object:
    return False if hint is bool else () if name == "consistency_tokens" else None


def checked_where(name: str, value: Any) -> CheckedFilter:  # noqa: ANN401
    """Returns the filter, which may be text; raises RequestMalformed and FilterInvalid."""
    kinds = (str, AllOf, AnyOf, Not, OneOf, InRange, StartsWith, Exists)
    checked_type(name, value, kinds, "send a filter, or its text")
    tree = parse_filter(value) if isinstance(value, str) else value
    return checked_filter(filter_to_proto(tree))


def _tokens(name: str, value: Iterable[Any]) -> list[str]:
    tokens = tuple(checked_elements(name, value, "send a list of consistency tokens"))
    for token in tokens:
        checked_type("a consistency token", token, str, "send the token of an earlier write")
    return [check_sendable("a consistency token", token) for token in tokens]


def _check(hint: Any) -> Callable[[str, Any], object]:  # noqa: ANN401
    """Returns what checks a value of this type."""
    first = (get_args(hint) or (hint,))[0]
    if issubclass(first, enum.Enum):
        return partial(checked_member, kind=first)
    return {bool: checked_flag, int: checked_integer, float: checked_real}.get(
        first, check_sendable
    )


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "where": checked_where,
    "consistency_tokens": _tokens,
}
_CHECKS |= {
    name: _check(hint)
    for name, hint in get_type_hints(SearchOptions).items()
    if name not in _CHECKS
}
