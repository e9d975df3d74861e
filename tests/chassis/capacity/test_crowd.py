"""capacity.crowd: whose place a newcomer gets."""

from __future__ import annotations

from tandem.chassis.capacity.crowd import Crowd


def crowd(max_count: int, *members: str, max_count_by_host: int | None = None) -> Crowd[str]:
    """Returns one of members such as "a1", of host "a"; those in capitals are of rank 1."""
    made = Crowd[str](max_count, max_count_by_host)
    for each in members:
        made.add(each, each[0].lower(), int(each.isupper()))
    return made


def test_one_host_may_have_every_place_until_another_comes() -> None:
    assert crowd(3, "a1", "a2").least_needed("a") is None
    assert crowd(3, "a1", "a2", "a3").least_needed("b") == "a1"


def test_the_host_with_most_members_loses_its_oldest() -> None:
    assert crowd(4, "b1", "a1", "a2", "c1").least_needed("b") == "a1"


def test_a_higher_rank_goes_last() -> None:
    assert crowd(3, "A1", "A2", "b1").least_needed("c") == "b1"
    assert crowd(3, "A1", "A2", "B1").least_needed("c") == "A1"


def test_a_member_of_another_rank_is_the_youngest() -> None:
    busy = crowd(2, "a1", "a2")
    busy.set_rank("a1", 1)
    assert busy.members["a1"] == (1, "a")
    assert busy.least_needed("a") == "a2"
    busy.set_rank("a1", 0)
    assert busy.least_needed("a") == "a2"


def test_a_host_at_its_limit_loses_a_member_of_its_own() -> None:
    limited = crowd(9, "b1", "a1", "A2", max_count_by_host=2)
    assert limited.least_needed("a") == "a1"
    assert limited.least_needed("b") is None


def test_places_are_free_again() -> None:
    full = crowd(1, "a1")
    for each in ("a1", "a1", "b1"):
        full.remove(each)
    assert full.least_needed("a") is None
    assert not full.members
