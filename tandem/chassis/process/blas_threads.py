"""Keeps matrix products of NumPy and FAISS in the thread that asks for them."""

from __future__ import annotations

import os
from typing import Final

from threadpoolctl import threadpool_limits

_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def keep_blas_in_this_thread() -> None:
    """Makes BLAS start no threads in this process, unless the environment sets how many.

    OpenBLAS starts one for each core of the machine, whatever share of them a container has, and
    each spins for tens of milliseconds after every large product. Calls run in parallel already.
    It applies to the libraries that are loaded by then.
    """
    if not any(name in os.environ for name in _VARIABLES):
        threadpool_limits(limits=1, user_api="blas")
