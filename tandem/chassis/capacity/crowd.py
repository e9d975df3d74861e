"""Gives newcomers the places of others, so that those who came first exclude no other."""

from collections import OrderedDict
from collections.abc import Hashable
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
        # Oldest first. A dict looks through the places of removed members for its first.
        self._groups: dict[tuple[int, str], OrderedDict[Member, None]] = {}
        self.members: dict[Member, tuple[int, str]] = {}
        """Each with its rank and host."""

    def least_needed(self, host: str) -> Member | None:
        """Returns the member whose place a newcomer of `host` needs; None if there is room."""
        of_host = sorted(key for key in self._groups if key[1] == host)
        if sum(len(self._groups[key]) for key in of_host) >= self._max_count_by_host:
            return next(iter(self._groups[of_host[0]]))
        if len(self.members) < self._max_count:
            return None
        key = min(self._groups, key=lambda each: (each[0], -len(self._groups[each])))
        return next(iter(self._groups[key]))

    def add(self, member: Member, host: str, rank: int = 0) -> None:
        """Gives a place to a new member, even past the limit."""
        self.members[member] = key = (rank, host)
        self._groups.setdefault(key, OrderedDict())[member] = None

    def set_rank(self, member: Member, rank: int) -> None:
        """Sets the rank of one that is a member, and its age to 0 if that changes."""
        before, host = self.members.get(member, (rank, ""))
        if before != rank:
            self.remove(member)
            self.add(member, host, rank)

    def remove(self, member: Member) -> None:
        """Frees the member's place, if it has one."""
        if key := self.members.pop(member, None):
            del self._groups[key][member]
            if not self._groups[key]:
                del self._groups[key]
