"""Compares LeaPRR's networks of the published width with the form in which they are exported.

    OMP_NUM_THREADS=1 python -m benchmarks.bench.neighbour_network --runs 50

Both are traced and run in turns, so that other work on the machine slows both.
"""

import argparse
import statistics
import time

import torch

from tandem.neighbours.leaprr.config import leaprr_config
from tandem.neighbours.leaprr.network import GraphNetwork
from tandem.neighbours.leaprr.refinement import LeaprrModel
from tandem.neighbours.leaprr.served_networks import ServedNetwork, described

_GRAPH_COUNTS = (1, 8)


def main() -> None:
    """Prints a row for each direction and number of graphs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=50)
    run_count = parser.parse_args().runs
    torch.set_num_threads(1)
    model = LeaprrModel.untrained(leaprr_config("code"), seed=1)
    manifest = described(model, "made")
    print("| nodes | graphs at once | before | exported form | ratio |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for network, direction in [
        (model.image_queries, manifest.image_query),
        (model.text_queries, manifest.text_query),
    ]:
        for graph_count in _GRAPH_COUNTS:
            graphs = _graphs(graph_count, direction.node_count, 2 * manifest.pillar_count)
            before, after = _spent(network, graphs, max(5, run_count // graph_count))
            ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
            print(
                f"| {direction.node_count} | {graph_count} | {statistics.median(before):.1f} | "
                f"{statistics.median(after):.1f} | {ratio:.2f} |",
                flush=True,
            )


@torch.inference_mode()
def _spent(
    network: GraphNetwork, graphs: tuple[torch.Tensor, ...], run_count: int
) -> tuple[list[float], list[float]]:
    """Returns each run's milliseconds of a processor, of both forms in turns."""
    forms = [
        torch.jit.trace(ServedNetwork(each.eval()), graphs, check_trace=False)
        for each in (network, network.for_inference())
    ]
    spent: tuple[list[float], list[float]] = ([], [])
    for form in forms:
        form(*graphs)
        form(*graphs)
    for _ in range(run_count):
        for form, times in zip(forms, spent, strict=True):
            start_time = time.thread_time()
            form(*graphs)
            times.append((time.thread_time() - start_time) * 1e3)
    return spent


def _graphs(graph_count: int, node_count: int, feature_count: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    features_BMF = 2 * torch.rand((graph_count, node_count, feature_count), generator=generator) - 1
    affinity_BMM = torch.rand((graph_count, node_count, node_count), generator=generator).softmax(
        -1
    )
    return features_BMF, affinity_BMM, torch.ones((graph_count, node_count), dtype=torch.int64)


if __name__ == "__main__":
    main()
