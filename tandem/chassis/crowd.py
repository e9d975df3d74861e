"""Gives newcomers the places of others, so that those who came first exclude no other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)


class Crowd(Generic[Member]):
    """The members that hold a limited number of places, by rank and host. For one event loop.

    Where places are short, the least needed member goes: one of the lowest rank, of the host that
    has most of that rank, and of these the oldest.
    """

    def __init__(self, max_count: int, max_count_by_host: int | None = None) -> None:
        self._max_count = max_count
        self._max_count_by_host = max_count if max_count_by_host is None else max_count_by_host
        self._keys: dict[Member, tuple[int, str]] = {}
        # By rank and host; oldest first.
        self._groups: dict[tuple[int, str], dict[Member, None]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._keys)

    def least_needed(self, host: str) -> Member | None:
        """Returns the member whose place a newcomer of `host` needs; None if there is room."""
        of_host = sorted(key for key in self._groups if key[1] == host)
        if sum(len(self._groups[key]) for key in of_host) >= self._max_count_by_host:
            return next(iter(self._groups[of_host[0]]))
        if len(self._keys) < self._max_count:
            return None
        key = min(self._groups, key=lambda each: (each[0], -len(self._groups[each])))
        return next(iter(self._groups[key]))

    def add(self, member: Member, host: str, rank: int = 0) -> None:
        """Gives a place to a new member, even past the limit."""
        self._keys[member] = key = (rank, host)
        self._groups.setdefault(key, {})[member] = None

    def rank(self, member: Member) -> int:
        """Returns a member's rank."""
        return self._keys[member][0]

    def set_rank(self, member: Member, rank: int) -> None:
        """Sets a member's rank, and its age to 0 if that changes."""
        key = self._keys.get(member)
        if key is not None and key[0] != rank:
            self.remove(member)
            self.add(member, key[1], rank)

    def remove(self, member: Member) -> None:
        """Frees the member's place, if it has one."""
        key = self._keys.pop(member, None)
        if key is not None:
            group = self._groups[key]
            del group[member]
            if not group:
                del self._groups[key]
