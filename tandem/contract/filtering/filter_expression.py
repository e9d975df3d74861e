"""Parses the text form of filters, as in `--where` and `SearchItemsRequest.filter_text`.

    style = noto and count >= 2 and not (language in (de, fr))

    expression := all ("or" all)*
    all        := one ("and" one)*
    one        := "not" one | "(" expression ")" | "exists" name | name condition
    condition  := ("=" | "!=") value | ("<" | "<=" | ">" | ">=") number
                | ["not"] "in" "(" value ("," value)* ")" | "starts" "with" text

A value is a number, `true`, `false`, or a text. A text needs single or double quotes unless it is
one plain word that is not a number, flag or keyword; so does a name that is a keyword. `x != 3` is
`not x = 3`, so it matches items without x as well.
"""

import re
from dataclasses import dataclass

from tandem.contract.filtering.attributes import name_fault, value_fault
from tandem.contract.filtering.filters import (
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
    Value,
    check_filter,
)
from tandem.contract.limits import MAX_FILTER_TEXT_BYTES
from tandem.errors import FilterInvalid

_KEYWORDS = {"and", "or", "not", "in", "exists", "starts", "with", "true", "false"}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<symbol><=|>=|!=|[=<>(),])
      | (?P<word>[^\s"'=<>!(),]+)
      | (?P<end>$)
    )""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(\d+|(\d+\.\d*|\.\d+)(e[+-]?\d+)?|\d+e[+-]?\d+)", re.IGNORECASE)
# A filter holds no brackets, so its own limit on depth does not count them.
_MAX_BRACKET_DEPTH = 32


class FilterTextInvalid(FilterInvalid):
    """A filter's text does not parse."""

    def __init__(self, text: str, position: int, why: str) -> None:
        """`position` counts characters from 0."""
        super().__init__(why=f"{why} (at character {position + 1:,} of its text)")
        self.position = position
        self._fault = why
        self._text = text

    def pointed_out(self) -> str:
        """Returns what is wrong, the text, and a mark under the character, on three lines."""
        line = re.sub(r"\s", " ", self._text)
        return f"{self._fault}\n  {line}\n  {' ' * self.position}^"


def parse_filter(text: str) -> Filter:
    """Returns the filter that a text means.

    Raises FilterTextInvalid, also for a text over `MAX_FILTER_TEXT_BYTES`.
    """
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_FILTER_TEXT_BYTES:
        why = f"the text has {size_bytes:,} bytes; send at most {MAX_FILTER_TEXT_BYTES:,}"
        raise FilterTextInvalid(text, 0, why)
    return _Parser(text).parse()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """quoted, symbol, word or end."""
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)

    def is_one_of(self, *texts: str) -> bool:
        """Returns whether the token is one of these symbols or keywords."""
        return self.kind in ("symbol", "word") and self.text in texts


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = self._split(expression)
        self._next = 0
        self._depth = 0

    def parse(self) -> Filter:
        tree = self._any()
        token = self._peek()
        if token.kind != "end":
            raise self._wrong(token, f"'and', 'or' or the end is expected here, not {token}")
        try:
            check_filter(tree)
        except FilterInvalid as error:
            raise FilterTextInvalid(self._expression, 0, error.why) from error
        return tree

    def _any(self) -> Filter:
        tree = self._all()
        while self._took("or"):
            tree = tree | self._all()
        return tree

    def _all(self) -> Filter:
        tree = self._one()
        while self._took("and"):
            tree = tree & self._one()
        return tree

    def _one(self) -> Filter:
        token = self._peek()
        if token.is_one_of("not", "("):
            self._depth += 1
            if self._depth > _MAX_BRACKET_DEPTH:
                raise self._wrong(token, f"brackets and 'not' are over {_MAX_BRACKET_DEPTH} deep")
            tree = self._negated_or_bracketed()
            self._depth -= 1
            return tree
        if self._took("exists"):
            return Exists(self._name())
        return self._condition(self._name())

    def _negated_or_bracketed(self) -> Filter:
        if self._took("not"):
            return ~self._one()
        opening = self._take()
        tree = self._any()
        closing = self._peek()
        if not self._took(")"):
            column = opening.position + 1
            raise self._wrong(
                closing, f"')' is expected here, for the '(' at {column}, not {closing}"
            )
        return tree

    def _condition(self, name: str) -> Filter:
        token = self._take()
        if token.is_one_of("="):
            return OneOf(name, (self._value(),))
        if token.is_one_of("!="):
            return Not(OneOf(name, (self._value(),)))
        if token.is_one_of("<", "<=", ">", ">="):
            return self._range(name, token.text)
        if token.is_one_of("in"):
            return OneOf(name, self._values())
        if token.is_one_of("not") and self._took("in"):
            return Not(OneOf(name, self._values()))
        if token.is_one_of("starts") and self._took("with"):
            return StartsWith(name, self._text())
        raise self._wrong(
            token,
            f"=, !=, <, <=, >, >=, 'in (...)' or 'starts with' is expected after {name}, "
            f"not {token}",
        )

    def _range(self, name: str, symbol: str) -> InRange:
        token = self._peek()
        bound = self._value()
        if isinstance(bound, str | bool):
            raise self._wrong(token, f"a number is expected after {symbol}, not {token}")
        match symbol:
            case "<":
                return InRange(name, below=bound)
            case "<=":
                return InRange(name, at_most=bound)
            case ">":
                return InRange(name, above=bound)
            case _:
                return InRange(name, at_least=bound)

    def _values(self) -> tuple[Value, ...]:
        opening = self._take()
        if not opening.is_one_of("("):
            raise self._wrong(opening, f"'(' is expected after 'in', not {opening}")
        values = [self._value()]
        while not self._took(")"):
            token = self._take()
            if not token.is_one_of(","):
                raise self._wrong(token, f"',' or ')' is expected here, not {token}")
            values.append(self._value())
        return tuple(values)

    def _value(self) -> Value:
        token = self._take()
        if token.kind == "quoted":
            return _unquoted(token.text)
        if token.is_one_of("true", "false"):
            return token.text == "true"
        if token.kind != "word" or token.text in _KEYWORDS:
            raise self._wrong(token, f"a value is expected here, not {token}")
        value = _word_value(token.text)
        if fault := value_fault(token.text[:20], value):
            raise self._wrong(token, fault)
        return value

    def _text(self) -> str:
        token = self._take()
        if token.kind == "quoted":
            return _unquoted(token.text)
        if token.kind != "word" or token.text in _KEYWORDS:
            raise self._wrong(token, f"a text is expected here, not {token}")
        return token.text

    def _name(self) -> str:
        token = self._take()
        name = _unquoted(token.text) if token.kind == "quoted" else token.text
        if token.kind not in ("word", "quoted") or (name == token.text and name in _KEYWORDS):
            raise self._wrong(token, f"an attribute's name is expected here, not {token}")
        if fault := name_fault(name):
            raise self._wrong(token, fault)
        return name

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        if token.kind != "end":
            self._next += 1
        return token

    def _took(self, text: str) -> bool:
        if not self._peek().is_one_of(text):
            return False
        self._next += 1
        return True

    def _wrong(self, token: _Token, why: str) -> FilterTextInvalid:
        return FilterTextInvalid(self._expression, token.position, why)

    def _split(self, expression: str) -> list[_Token]:
        tokens: list[_Token] = []
        place = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKEN.match(expression, place)
            if match is None or match.lastgroup is None:
                position = place + len(expression[place:]) - len(expression[place:].lstrip())
                raise FilterTextInvalid(expression, position, _misread(expression[position]))
            kind = match.lastgroup
            tokens.append(_Token(kind, match.group(kind), match.start(kind)))
            place = match.end()
        return tokens


def _misread(character: str) -> str:
    if character in "\"'":
        return f"the text that begins with {character} here has no end"
    return f"{character!r} means nothing here; '!' is only valid in '!='"


def _word_value(word: str) -> Value:
    if _NUMBER.fullmatch(word) is None:
        return word
    try:
        return int(word)
    except ValueError:
        return float(word)


def _unquoted(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL)
