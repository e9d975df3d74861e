"""Times the third stage's parts in a large index: neighbours on a shard, graph, network.

    python -m benchmarks.bench.neighbour_stage --size 1000000

One shard holds the same made rows as texts and as pictures, so that both searches of a stage are
as long as they would be, in half the memory. What is between the parts, gRPC and Triton, is not
here; `tandem search --neighbours-enabled` prints the whole stage. Also measures which share of the
candidates' nearest the pool has.

Shapes: N items, V nodes, C neighbours, d dimensions.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from benchmarks.support.clustered_vectors import Source
from tandem.contract.content import Modality
from tandem.lab.neighbours.leaprr.config import Profile, leaprr_config
from tandem.lab.neighbours.leaprr.refinement import LeaprrModel
from tandem.lab.neighbours.leaprr.served_networks import described
from tandem.local.shard.retrieval.arrays import F32
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.exact_scan import scan_rows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.faiss_threads import keep_faiss_in_this_thread
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.neighbourhood import neighbourhood
from tandem.model_io.inference.served_neighbour_model import graph_tensors
from tandem.model_io.repository.neighbour_manifest import NeighbourModelManifest
from tandem.search.neighbours.joined_neighbours import joined_graph
from tandem.stages.neighbours import ModalityNeighbours, ShardNeighbourQuery, ShardNeighbours
from tandem.wire.neighbours import neighbours_to_proto

_ADD_COUNT = 50_000
# An exact scan of a million rows takes a second, and there is one for each candidate.
_EXACT_COUNT = 3


@dataclass(slots=True)
class Laps:
    """Collects each part's times: of the clock, and of all threads on processors."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    processor_milliseconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Times its body."""
        start_time, start_processor_time = time.perf_counter(), time.process_time()
        yield
        spent = (time.perf_counter() - start_time) * 1e3
        processor_spent = (time.process_time() - start_processor_time) * 1e3
        self.milliseconds.setdefault(part, []).append(spent)
        self.processor_milliseconds.setdefault(part, []).append(processor_spent)


def main() -> None:
    """Builds the index, runs every query, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--faiss-type", default="IVF2048,RaBitQfs")
    parser.add_argument("--nprobe", type=int, default=64)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--pools", type=int, nargs="*", default=[128, 512, 1_000])
    parser.add_argument("--profile", choices=["paper", "code"], default="paper")
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = Source(options.size, 7)
    part = _index(source, options.size, options.faiss_type, options.nprobe)
    queries = source.draw(options.queries)
    print("| pool | part | p50 ms | p95 ms | p50 ms of processors |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for pool in options.pools:
        laps, recall = _run(part, queries, pool, options.profile)
        processor = _with_sum(laps.processor_milliseconds)
        for name, spent in _with_sum(laps.milliseconds).items():
            cuts, middle = statistics.quantiles(spent, n=20), statistics.median(processor[name])
            print(
                f"| {pool} | {name} | {statistics.median(spent):.2f} | {cuts[-1]:.2f} | "
                f"{middle:.2f} |"
            )
        print(f"| {pool} | share of the candidates' nearest 10 in the pool | {recall:.4f} | | |")


def _with_sum(parts: dict[str, list[float]]) -> dict[str, list[float]]:
    return {**parts, "sum": [sum(each) for each in zip(*parts.values(), strict=True)]}


def _index(source: Source, size: int, faiss_type: str, nprobe: int) -> ModalityIndex:
    rows = EmbeddingRows(len(source.draw(1)[0]))
    for start in range(0, size, _ADD_COUNT):
        count = min(_ADD_COUNT, size - start)
        rows.append([str(start + number) for number in range(count)], source.draw(count))
    start_time = time.perf_counter()
    index = FaissIndex.build(faiss_type, rows, rows.row_count)
    index.tune({"nprobe": nprobe})
    # As index_svc: a search runs in one thread.
    keep_faiss_in_this_thread()
    seconds = time.perf_counter() - start_time
    print(f"{size:,} rows, {faiss_type}, built in {seconds:.0f} s", flush=True)
    return ModalityIndex(rows, index)


def _run(part: ModalityIndex, queries: F32, pool: int, profile: Profile) -> tuple[Laps, float]:
    """Returns the times of each query's stage as a picture that finds 32 texts, and the recall."""
    config = leaprr_config(profile)
    model = LeaprrModel.untrained(config, seed=1)
    manifest = described(model, "made")
    network = model.image_queries.eval()
    laps, shares = Laps(), []
    for number, query_D in enumerate(queries):
        rows = [hit.row for hit in part.search(query_D, manifest.image_query.item_count).hits]
        nodes_VD = np.concatenate([query_D[None], part.rows.gather(np.array(rows))])
        asked = ShardNeighbourQuery(
            "made", "made", nodes_VD, pool, config.pillar_count + 1, config.affinity_neighbours
        )
        with laps.timed("neighbours of two modalities on the shard"):
            found = {modality: neighbourhood(part, asked) for modality in Modality}
        with laps.timed("their message, written"):
            neighbours_to_proto(found).SerializeToString()
        with laps.timed("graph"):
            tensors = _tensors(found, nodes_VD, manifest)
        with laps.timed(f"network ({profile}), one thread"), torch.inference_mode():
            network(*tensors)
        if number < _EXACT_COUNT:
            shares.append(_share(part.rows, found[Modality.TEXT], nodes_VD))
    return laps, float(np.mean(shares))


def _tensors(
    found: ShardNeighbours, nodes_VD: F32, manifest: NeighbourModelManifest
) -> Sequence[torch.Tensor]:
    graph = joined_graph({0: found}, nodes_VD, Modality.IMAGE, "made", manifest.describe())
    assert graph is not None
    tensors = graph_tensors(graph, manifest)
    convert: Callable[[np.ndarray], torch.Tensor] = torch.from_numpy
    return convert(tensors.features), convert(tensors.affinity), convert(tensors.mask).bool()


def _share(rows: EmbeddingRows, found: ModalityNeighbours, nodes_VD: F32) -> float:
    """Returns the share of the candidates' truly nearest that were found."""
    count = found.numbers.shape[1]
    shares = [
        len({*scan_rows(rows, each_D, count)[1].tolist()} & {*near.tolist()}) / count
        for each_D, near in zip(nodes_VD[1:], found.numbers[1:], strict=True)
    ]
    return float(np.mean(shares))


if __name__ == "__main__":
    main()
