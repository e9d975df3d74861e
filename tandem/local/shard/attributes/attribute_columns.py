"""Keeps items' attributes by row, and evaluates a filter over all of them at once.

Shapes: R rows.
"""

from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import (
    AllOf,
    AnyOf,
    Exists,
    Filter,
    InRange,
    Not,
    OneOf,
    StartsWith,
)
from tandem.local.shard.attributes.growing_array import grown
from tandem.local.shard.attributes.text_dictionary import Dictionary
from tandem.local.shard.attributes.typed_columns import (
    Condition,
    NumberColumn,
    TextColumn,
    TextListColumn,
    TypedColumn,
)

_TEXT_COLUMNS: dict[type, type[TextColumn | TextListColumn]] = {
    str: TextColumn,
    tuple: TextListColumn,
}


class AttributeColumns:
    """Stores the attributes of rows, with one column for each name and type.

    A row takes 4 bytes, and its columns' bytes for each attribute (`typed_columns`); an attribute
    that few rows have takes about 100 to 150 bytes. Searches may run in parallel, but the caller
    must keep them from changes.
    """

    def __init__(self) -> None:
        self._columns: dict[str, dict[type, TypedColumn]] = {}
        # Which columns a row has values in, as a code that rows with the same names share.
        self._layouts: Dictionary[tuple[tuple[str, type], ...]] = Dictionary()
        self._layout_codes_R = np.zeros(0, dtype=np.int32)  # plus 1; 0 is no attributes

    def put(self, row: int, attributes: Attributes) -> None:
        """Sets the checked attributes of a row, replacing its old ones."""
        self.drop(row)
        if not attributes:
            return
        layout = tuple((name, type(attributes[name])) for name in sorted(attributes))
        for name, kind in layout:
            self._column(name, kind).put(row, attributes[name])
        self._layout_codes_R = grown(self._layout_codes_R, row + 1)
        self._layout_codes_R[row] = self._layouts.acquire(layout) + 1

    def drop(self, row: int) -> None:
        """Removes all attributes of a row, which may have none."""
        if row >= len(self._layout_codes_R) or not self._layout_codes_R[row]:
            return
        code = int(self._layout_codes_R[row]) - 1
        self._layout_codes_R[row] = 0
        for name, kind in self._layouts[code]:
            self._columns[name][kind].drop(row)
            self._forget_if_empty(name, kind)
        self._layouts.release(code)

    def matching(self, where: Filter, row_count: int) -> NDArray[np.bool_]:
        """Returns which of the first `row_count` rows a checked filter matches, bool [R].

        Rows without attributes are evaluated as such.
        """
        match where:
            case AllOf(filters):
                holds_R = np.ones(row_count, dtype=np.bool_)
                for each in filters:
                    holds_R &= self.matching(each, row_count)
                return holds_R
            case AnyOf(filters):
                holds_R = np.zeros(row_count, dtype=np.bool_)
                for each in filters:
                    holds_R |= self.matching(each, row_count)
                return holds_R
            case Not(negated):
                return ~self.matching(negated, row_count)
            case OneOf() | InRange() | StartsWith() | Exists():
                return self._matching_condition(where, row_count)
            case _:
                assert_never(where)

    def _matching_condition(self, condition: Condition, row_count: int) -> NDArray[np.bool_]:
        holds_R = np.zeros(row_count, dtype=np.bool_)
        for column in self._columns.get(condition.name, {}).values():
            column.mark(holds_R, condition)
        return holds_R

    def _column(self, name: str, kind: type) -> TypedColumn:
        of_name = self._columns.setdefault(name, {})
        if kind not in of_name:
            of_name[kind] = _TEXT_COLUMNS[kind]() if kind in _TEXT_COLUMNS else NumberColumn(kind)
        return of_name[kind]

    def _forget_if_empty(self, name: str, kind: type) -> None:
        of_name = self._columns[name]
        if not len(of_name[kind]):
            del of_name[kind]
            if not of_name:
                del self._columns[name]
