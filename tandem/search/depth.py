"""Search depth: three numbers, each with a default."""

from dataclasses import dataclass
from typing import Self

from tandem.contract.limits import MAX_RERANK_K, MAX_RETRIEVE_K, check_k

# The paper's best trade-off of accuracy and time (Geigle et al. 2022, section 6).
_DEFAULT_RERANK_K = 20
_DEFAULT_RETURN_N = 10


@dataclass(frozen=True, slots=True)
class Depth:
    """Holds how many items are retrieved, how many of them reranked, and how many returned."""

    retrieve_k: int
    rerank_k: int
    return_n: int

    @classmethod
    def of(cls, retrieve_k: int | None, rerank_k: int | None, return_n: int | None) -> Self:
        """Returns the depth with defaults for None; raises KOutOfRange, naming the field."""
        _check("retrieve_k", retrieve_k, MAX_RETRIEVE_K)
        _check("rerank_k", rerank_k, MAX_RERANK_K)
        _check("return_n", return_n, MAX_RETRIEVE_K)
        retrieve = retrieve_k or max(_DEFAULT_RERANK_K, rerank_k or 0, return_n or 0)
        _check("rerank_k", rerank_k, retrieve)
        _check("return_n", return_n, retrieve)
        return cls(
            retrieve,
            rerank_k or min(_DEFAULT_RERANK_K, retrieve),
            return_n or min(_DEFAULT_RETURN_N, retrieve),
        )


def _check(name: str, value: int | None, high: int) -> None:
    if value is not None:
        check_k(name, value, high)
