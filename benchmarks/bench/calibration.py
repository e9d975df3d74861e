"""How far the probabilities of served searches are what happens: over all pairs, and first hits.

    python -m benchmarks.bench.calibration [--precision int8] [--scenes 2000] [--queries 400]
    python -m benchmarks.bench.calibration --address HOST:PORT [...]

The whole system on this machine, or one that runs already: scenes of the test split are ingested,
pictures and captions, and searched both ways with every candidate of the rerank returned. Expected
calibration errors are those of `tandem models calibrate`, in 15 bins, of the probabilities as they
came back.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tandem.client import Access, Client
from tandem.contract.content import Modality
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.calibration.probability_fit import expected_calibration_error
from tandem.lab.evaluation.gallery import DIRECTIONS, Gallery, languages_of, make_gallery
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.stack import LocalStack, Ports

INDEX_ID = "calibration"
POOL_SIZE = 20


def main() -> None:
    """Prints a line of JSON, and a table."""
    arguments = _arguments()
    gallery = make_gallery(
        records := list(scene_records("test", 1, arguments.scenes)), languages_of(records)
    )
    with (
        _address(arguments) as address,
        Client(address, access=Access.from_environment()) as client,
    ):
        outcomes = client.ingest(gallery.items(), index_id=INDEX_ID)
        refused = [each for each in outcomes if each.error]
        assert not refused, refused[0].error
        precision = client.describe_model().precision
        rows = [
            _row(name, *_probabilities(client, gallery, target, arguments.queries))
            for name, target in DIRECTIONS.items()
        ]
    print(json.dumps({"benchmark": "calibration", "precision": precision, "rows": rows}))
    print("\n| precision | direction | queries | pairs | error, all pairs | error, first hit |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(
            f"| {precision} | {row['direction']} | {row['queries']} | {row['pairs']} "
            f"| {row['pool_error']:.4f} | {row['first_error']:.4f} |"
        )


def _probabilities(
    client: Client, gallery: Gallery, target: Modality, query_count: int
) -> tuple[list[list[float]], list[list[bool]]]:
    """Returns of each query the probabilities of its items, first hit first, and which match."""
    asked = gallery.query_numbers(target, query_count)
    matches, ids = gallery.matches(target), gallery.item_ids[target]
    said, so = [], []
    for number, query in zip(asked, gallery.queries(target, asked), strict=True):
        found = client.search(
            query.query,
            index_id=INDEX_ID,
            target_modality=target,
            rerank_k=POOL_SIZE,
            return_n=POOL_SIZE,
            rerank_required=True,
        )
        wanted = {ids[match] for match in matches[number]}
        reranked = [
            (item.match_probability, item.item_id in wanted)
            for item in found.items
            if item.match_probability is not None
        ]
        said.append([probability for probability, _ in reranked])
        so.append([is_match for _, is_match in reranked])
    return said, so


def _row(direction: str, said: list[list[float]], so: list[list[bool]]) -> dict[str, Any]:
    pairs, are_so = np.concatenate(said), np.concatenate(so)
    firsts, are_first_so = (np.array([each[0] for each in part]) for part in (said, so))
    return {
        "direction": direction,
        "queries": len(said),
        "pairs": len(pairs),
        "pool_error": expected_calibration_error(pairs, are_so),
        "first_error": expected_calibration_error(firsts, are_first_so),
    }


@contextmanager
def _address(arguments: argparse.Namespace) -> Iterator[str]:
    if arguments.address:
        yield arguments.address
        return
    with tempfile.TemporaryDirectory() as work:
        repository = Path(work) / "models"
        export_if_stale(default_checkpoint(), repository, arguments.precision)
        with LocalStack(Path(work) / "data", repository, Ports.free(1)) as stack:
            stack.start()
            yield stack.address


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", default="", help="of a running orchestrator")
    parser.add_argument("--precision", type=Precision, default=native_precision())
    parser.add_argument("--scenes", type=int, default=2_000)
    parser.add_argument("--queries", type=int, default=400, help="each way")
    return parser.parse_args()


if __name__ == "__main__":
    main()
