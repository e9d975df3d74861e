"""Defines what a search of one index finds, and how."""

import numpy as np
import numpy.typing as npt

from tandem.contract.search_path import SearchPath as SearchPath
from tandem.contract.search_path import SearchStrategy as Strategy

__all__ = ["F32", "I64", "Mask", "SearchPath", "Strategy"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
