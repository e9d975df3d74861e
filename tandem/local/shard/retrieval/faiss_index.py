"""Wraps a FAISS index of any type, which finds candidates to be compared exactly."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import faiss as faiss_module
import numpy as np
import numpy.typing as npt

from tandem.errors import IndexTypeInvalid
from tandem.local.shard.retrieval.arrays import F32, I64, Mask
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows

# FAISS's type stubs lack many names used here.
faiss: Any = faiss_module

# FAISS asks for at least 39 points a centroid and uses at most 256.
_POINTS_PER_CENTROID = 64
_MIN_TRAIN_COUNT = 20_000
_ADD_COUNT = 8_192
# FAISS's GPU indexes find no more at once.
_MAX_GPU_K = 2_048
# A type comes from callers of the admin service; "auto" never exceeds these limits.
_MAX_TYPE_LENGTH = 100
_MAX_TYPE_NUMBER = 65_536
_MAX_CODE_BITS = 12
# With one link FAISS kills the process at the first row; with eight, an NSG of 20,000 rows did not
# finish building within 100 s, nor one of 3,000 with seven within 20 s.
_MIN_LINK_COUNTS = {"HNSW": 2, "NSG": 16}
_MAX_PARAMETER = 1_000_000
# Of ten million x 128, the 40 best by bytes have 0.88 of the nearest 20 if they are chosen of 200
# candidates by bits, 0.95 of 400, 0.98 of 800 and 0.99 of 1,600.
_REFINED_PER_FETCHED = 20

SearchParameters = Mapping[str, float]
"""By FAISS's names, such as nprobe and efSearch."""


class FaissIndex:
    """Finds candidates among the first rows; its labels are row numbers.

    Rows can be added where `takes_rows` is set. Searches may run in parallel, but not during add()
    or tune().
    """

    def __init__(
        self,
        index: Any,  # noqa: ANN401 (SWIG)
        index_type: str,
        written_bytes: int,
        gpu_number: int | None = None,
    ) -> None:
        """Takes over an index whose labels are row numbers, and the size of its file."""
        self.index_type = index_type
        self._cpu_index = index
        self._gpu_index: Any = None
        self._gpu_resources: Any = None  # must outlive the index
        self.device = "cpu"
        self.gpu_refusal = ""
        if gpu_number is not None:
            self._move_to_gpu(gpu_number)
        self.parameters: dict[str, float] = {}
        self._counted = (written_bytes, int(index.ntotal))
        self.takes_selector = _takes_selector(index)
        self.takes_rows = _takes_rows(index)
        self.codes_are_exact = _codes_are_exact(index)
        self.is_refined = isinstance(faiss.downcast_index(index), faiss.IndexRefine)

    @classmethod
    def build(
        cls,
        index_type: str,
        rows: EmbeddingRows,
        row_count: int,
        *,
        seed: int = 0,
        gpu_number: int | None = None,
    ) -> Self:
        """Trains an index on a sample of the live rows and adds the first row_count rows.

        `rows` may get more rows meanwhile. Raises IndexTypeInvalid with FAISS's message.
        """
        index = make_empty(index_type, rows.dimension)
        live = np.flatnonzero(rows.live[:row_count])
        train_count = max(_MIN_TRAIN_COUNT, _POINTS_PER_CENTROID * list_count(index))
        if train_count < len(live):
            live = np.random.default_rng(seed).choice(live, train_count, replace=False)
            live.sort()
        try:
            if not index.is_trained:
                index.train(rows.gather(live))
            _add_rows(index, rows, 0, row_count)
            if row_count:  # fails now, rather than in every search
                index.search(np.zeros((1, rows.dimension), np.float32), 1)
        except RuntimeError as error:
            raise IndexTypeInvalid(why=_plain(error)) from error
        return cls(index, index_type, _written_bytes(index), gpu_number)

    @classmethod
    def read(cls, path: Path, index_type: str, gpu_number: int | None = None) -> Self:
        """Reads a file of write(); its checksum must have been verified."""
        return cls(faiss.read_index(str(path)), index_type, path.stat().st_size, gpu_number)

    def write(self, path: Path) -> None:
        """Writes the index to a file, without its parameters."""
        faiss.write_index(self._cpu_index, str(path))

    @property
    def row_count(self) -> int:
        return int(self._cpu_index.ntotal)

    @property
    def dimension(self) -> int:
        return int(self._cpu_index.d)

    def add(self, rows: EmbeddingRows, stop_row: int) -> None:
        """Adds the rows from row_count up to stop_row."""
        start_row = self.row_count
        _add_rows(self._cpu_index, rows, start_row, stop_row)
        if self._gpu_index is not None:
            _add_rows(self._gpu_index, rows, start_row, stop_row)

    def tune(self, parameters: SearchParameters) -> None:
        """Sets search parameters, all or none.

        Raises IndexTypeInvalid for a parameter that this type does not have.
        """
        for name, value in parameters.items():
            if not 1 <= value <= _MAX_PARAMETER:  # NaN is neither
                raise IndexTypeInvalid(why=f"{name} is {value}; send 1 to {_MAX_PARAMETER:,}")
        try:
            self._set({**self.parameters, **parameters})
        except RuntimeError as error:
            self._set(self.parameters)
            refused = ", ".join(f"{name}={value:g}" for name, value in parameters.items())
            raise IndexTypeInvalid(why=f"{self.index_type} does not take {refused}") from error
        self.parameters = {**self.parameters, **parameters}

    def _set(self, parameters: SearchParameters) -> None:
        for name, value in parameters.items():
            faiss.ParameterSpace().set_index_parameter(self._cpu_index, name, value)
            if self._gpu_index is not None:
                faiss.GpuParameterSpace().set_index_parameter(self._gpu_index, name, value)

    def candidates(
        self, query_D: F32, k: int, *, mask: Mask | None = None, effort: float = 1.0
    ) -> tuple[I64, str]:
        """Returns at most k row numbers, best first by codes, and why not the GPU, or "".

        `mask` [row_count] skips rows, where takes_selector is set. `effort` multiplies the part of
        the index that is searched, for masks that skip most of it.
        """
        labels_1K, reason = self._labels(query_D[np.newaxis], k, mask, effort)
        return labels_1K[labels_1K >= 0], reason

    def near_each(
        self, embeddings_VD: F32, k: int, *, effort: float, mask: Mask | None = None
    ) -> I64:
        """Returns the row numbers nearest to any of the embeddings by codes, k for each at most.

        They are sorted, without duplicates. `mask` is that of candidates(). One call for all
        embeddings costs far less than one for each: an IVF index reads a list once for every
        embedding that needs it.
        """
        labels_VK, _ = self._labels(np.ascontiguousarray(embeddings_VD), k, mask, effort)
        found: I64 = np.unique(labels_VK[labels_VK >= 0])
        return found

    def _labels(self, queries_VD: F32, k: int, mask: Mask | None, effort: float) -> tuple[I64, str]:
        """Returns row numbers [V, K], -1 where there are fewer, and why not the GPU, or ""."""
        count = min(k, self.row_count)
        if count == 0:
            return np.empty((len(queries_VD), 0), np.int64), ""
        index, reason = self._choose(count, has_selector=mask is not None)
        parameters = None
        if index is self._cpu_index and self.takes_selector:
            bits = None if mask is None else np.packbits(mask, bitorder="little")
            selector = _bitmap(bits, self.row_count)  # points at the bits, which must outlive it
            parameters = _search_parameters(index, selector, effort)
        labels_VK: I64 = index.search(queries_VD, count, params=parameters)[1]
        return labels_VK, reason

    def size_bytes(self) -> int:
        """Returns the size of its file, which is about its size in memory.

        It was counted at the start and scaled by rows since: counting takes as long as writing.
        """
        counted_bytes, counted_rows = self._counted
        return counted_bytes * self.row_count // max(1, counted_rows)

    def list_imbalance(self) -> float | None:
        """Returns FAISS's imbalance factor of its lists, 1 if all have one length.

        None if the type has no lists.
        """
        ivf = _ivf(self._cpu_index)
        return None if ivf is None else float(ivf.invlists.imbalance_factor())

    @property
    def max_list_count(self) -> int:
        """Returns how many lists it has; 0 if the type has none."""
        return list_count(self._cpu_index)

    def _choose(self, count: int, *, has_selector: bool) -> tuple[Any, str]:
        if self._gpu_index is None:
            return self._cpu_index, self.gpu_refusal
        if count > _MAX_GPU_K:
            return self._cpu_index, f"a GPU index finds at most {_MAX_GPU_K} at once"
        if has_selector:
            return self._cpu_index, "a GPU index takes no filter"
        return self._gpu_index, ""

    def _move_to_gpu(self, gpu_number: int) -> None:
        try:
            resources = faiss.StandardGpuResources()
            self._gpu_index = faiss.index_cpu_to_gpu(resources, gpu_number, self._cpu_index)
            self._gpu_resources = resources
            self.device = f"cuda:{gpu_number}"
        except (RuntimeError, AttributeError) as error:
            self.gpu_refusal = f"FAISS does not move {self.index_type} to a GPU: {_plain(error)}"


def _written_bytes(index: Any) -> int:  # noqa: ANN401 (SWIG)
    counter = _ByteCounter()
    faiss.write_index(index, faiss.PyCallbackIOWriter(counter.add))
    return counter.count


class _ByteCounter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, written: bytes) -> None:
        self.count += len(written)


def visible_gpu_count() -> int:
    """Returns how many GPUs FAISS sees; 0 for the build without GPU code."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "get_num_gpus") else 0


def make_empty(index_type: str, dimension: int) -> Any:  # noqa: ANN401 (SWIG)
    """Returns an untrained index by FAISS's factory.

    Raises IndexTypeInvalid with FAISS's message, or for a number that FAISS accepts and then fails
    on: it creates every list of IVF99999999, for minutes; IVF0 cannot be searched, or kills the
    process when it is trained, as HNSW1 does.
    """
    _check_numbers(index_type)
    try:
        index = faiss.index_factory(dimension, index_type, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise IndexTypeInvalid(
            why=f"FAISS does not know {index_type!a}: {_plain(error)}"
        ) from error
    if isinstance(index, faiss.IndexRefine):
        index.k_factor = _REFINED_PER_FETCHED
    return index


def _check_numbers(index_type: str) -> None:
    shown = index_type[:_MAX_TYPE_LENGTH]
    if len(index_type) > _MAX_TYPE_LENGTH:
        raise IndexTypeInvalid(why=f"the type {shown!a}… is over {_MAX_TYPE_LENGTH} characters")
    for bits in re.findall(r"x(\d+)", index_type):
        if int(bits) > _MAX_CODE_BITS:
            raise IndexTypeInvalid(why=f"{shown!a} has codes of over {_MAX_CODE_BITS} bits")
    for kind, links in re.findall(r"(HNSW|NSG)(\d+)", index_type):
        if 0 < int(links) < _MIN_LINK_COUNTS[kind]:
            raise IndexTypeInvalid(
                why=f"{shown!a} has a graph of {int(links)} links a row; {kind} needs at least "
                f"{_MIN_LINK_COUNTS[kind]}"
            )
    for number in re.findall(r"\d+", index_type):
        if int(number) > _MAX_TYPE_NUMBER:
            raise IndexTypeInvalid(why=f"{shown!a} has a number over {_MAX_TYPE_NUMBER:,}")
        if int(number) == 0:
            raise IndexTypeInvalid(why=f"{shown!a} has a 0 for what must be at least 1")


def list_count(index: Any) -> int:  # noqa: ANN401 (SWIG)
    """Returns how many lists an IVF index has, 0 for other types."""
    ivf = _ivf(index)
    return 0 if ivf is None else int(ivf.nlist)


def _search_parameters(index: Any, selector: Any, effort: float) -> Any:  # noqa: ANN401 (SWIG)
    """Returns parameters for one search; None to use the index's own."""
    if selector is None and effort == 1:
        return None
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return faiss.SearchParametersPreTransform(
            index_params=_search_parameters(index.index, selector, effort)
        )
    if isinstance(index, faiss.IndexRefine):
        return faiss.IndexRefineSearchParameters(
            k_factor=max(1.0, index.k_factor * min(1.0, effort)),
            base_index_params=_search_parameters(index.base_index, selector, effort),
        )
    if isinstance(index, faiss.IndexIVF):
        nprobe = min(index.nlist, math.ceil(index.nprobe * effort))
        return faiss.SearchParametersIVF(sel=selector, nprobe=nprobe)
    if isinstance(index, faiss.IndexHNSW):
        return faiss.SearchParametersHNSW(
            sel=selector, efSearch=math.ceil(index.hnsw.efSearch * effort)
        )
    return faiss.SearchParameters(sel=selector)


def _bitmap(bits: npt.NDArray[np.uint8] | None, row_count: int) -> Any:  # noqa: ANN401 (SWIG)
    return None if bits is None else faiss.IDSelectorBitmap(row_count, faiss.swig_ptr(bits))


def _ivf(index: Any) -> Any:  # noqa: ANN401 (SWIG)
    searched = _searched(index)
    return searched if isinstance(searched, faiss.IndexIVF) else None


def _searched(index: Any) -> Any:  # noqa: ANN401 (SWIG)
    """Returns the inner index, inside any transforms and refinement."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return _searched(index.index)
    if isinstance(index, faiss.IndexRefine):
        return _searched(index.base_index)
    return index


def _codes_are_exact(index: Any) -> bool:  # noqa: ANN401 (SWIG)
    """Returns whether its codes order candidates exactly as the embeddings do."""
    index = faiss.downcast_index(index)
    return isinstance(
        index, faiss.IndexFlat | faiss.IndexIVFFlat | faiss.IndexHNSWFlat | faiss.IndexNSGFlat
    )


def _takes_selector(index: Any) -> bool:  # noqa: ANN401 (SWIG)
    """Returns whether it can skip rows; tried, because FAISS reports it only by failing."""
    if index.ntotal == 0:
        return False
    bits = np.zeros((index.ntotal + 7) // 8, dtype=np.uint8)
    selector = _bitmap(bits, index.ntotal)
    try:
        parameters = _search_parameters(index, selector, 1.0)
        labels = index.search(np.zeros((1, index.d), np.float32), 1, params=parameters)[1]
    except RuntimeError:
        return False
    return bool((labels < 0).all())


def _takes_rows(index: Any) -> bool:  # noqa: ANN401 (SWIG)
    """Returns whether rows can be added after the first build."""
    return not isinstance(_searched(index), faiss.IndexNSG | faiss.IndexNNDescent)


def _add_rows(index: Any, rows: EmbeddingRows, start_row: int, stop_row: int) -> None:  # noqa: ANN401
    count = _ADD_COUNT if _takes_rows(index) else max(1, stop_row - start_row)
    for start in range(start_row, stop_row, count):
        index.add(rows.gather(np.arange(start, min(start + count, stop_row))))


def _plain(error: Exception) -> str:
    """Returns FAISS's message without the name of its C++ function."""
    return str(error).strip().splitlines()[0].rpartition("Error: ")[2][:200]
