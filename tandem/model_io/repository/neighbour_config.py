"""Writes config.pbtxt of a neighbour model."""

from tandem.model_io.repository.config_pbtxt import ModelConfig, TensorSpec, WarmUp, render
from tandem.model_io.repository.neighbour_manifest import NEIGHBOUR_MODEL, NeighbourModelManifest

# Graphs of so many searches in one batch; a graph takes a core some milliseconds.
_MAX_BATCH_SIZE = 8


def neighbour_config(manifest: NeighbourModelManifest) -> str:
    feature_count = 2 * manifest.pillar_count
    return render(
        ModelConfig(
            NEIGHBOUR_MODEL,
            _MAX_BATCH_SIZE,
            (
                TensorSpec("INPUT__0", "TYPE_FP32", (-1, feature_count)),
                TensorSpec("INPUT__1", "TYPE_FP32", (-1, -1)),
                TensorSpec("INPUT__2", "TYPE_INT64", (-1,)),
            ),
            (TensorSpec("OUTPUT__0", "TYPE_FP32", (-1,)),),
            tuple(
                _warm_up(batch_size, direction.node_count, feature_count)
                for direction in (manifest.text_query, manifest.image_query)
                for batch_size in (1, _MAX_BATCH_SIZE)
            ),
        )
    )


def _warm_up(batch_size: int, node_count: int, feature_count: int) -> WarmUp:
    return WarmUp(
        batch_size,
        {
            "INPUT__0": (node_count, feature_count),
            "INPUT__1": (node_count, node_count),
            "INPUT__2": (node_count,),
        },
    )
