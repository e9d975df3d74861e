"""A tenth of the calls may be retried, and a few more after a quiet time."""

from tandem.search.calls.retry_budget import RetryBudget


def test_an_outage_adds_at_most_a_tenth_of_calls() -> None:
    budget = RetryBudget()
    retries = 0
    for _ in range(2_000):
        budget.earn()
        retries += budget.spend()

    assert 200 <= retries <= 210


def test_saved_retries_are_bounded() -> None:
    """Otherwise a quiet night would pay for a storm in the morning."""
    budget = RetryBudget()
    for _ in range(10_000):
        budget.earn()

    assert sum(budget.spend() for _ in range(100)) == 10
