"""`python -m tandem_ray`: stores a folder of pictures, or parquet files, in an index."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath

import pyarrow as pa
import ray
import ray.data
from pyarrow.fs import FileSelector, FileSystem
from ray.exceptions import RayError

from tandem.errors import TandemError
from tandem_ray.ingest import absolute, ingest
from tandem_ray.sending import Destination

_SUFFIXES = ["jpg", "jpeg", "png", "webp"]
_SHOWN_REFUSAL_COUNT = 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints what is stored; exits with 1 if a row was refused or a task failed."""
    given = _parser().parse_args(arguments)
    source = absolute(given.source)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Joins the cluster of RAY_ADDRESS, or starts one on this machine.
    ray.init(include_dashboard=False)
    try:
        if given.content_column:
            dataset = ray.data.read_parquet(source)
            columns = {"id_column": given.id_column, "content_column": given.content_column}
        else:
            dataset = _pictures(source)
            columns = {"id_column": "path", "item_id_column": "id", "content_column": "bytes"}
        report = ingest(
            dataset,
            Destination(address=given.address, index_id=given.index, **columns),
            state=given.state,
            stream_count=given.streams,
            rows_per_task=given.rows_per_task,
        )
    except (RayError, TandemError, OSError, ValueError) as error:
        sys.exit(f"tandem_ray: {error}\ntandem_ray: the same command sends the rest")
    for refused in report.refused[:_SHOWN_REFUSAL_COUNT]:
        print(f"{refused.item_id!r}: {refused.error}", file=sys.stderr)
    print(f"{report.stored_count:,} items stored, {len(report.refused):,} refused")
    sys.exit(1 if report.refused else 0)


def _pictures(folder: str) -> ray.data.Dataset:
    """Returns the pictures below a folder, with the ids that `tandem ingest` gives them.

    Raises ValueError for two files that would be one item.
    """
    filesystem, place = FileSystem.from_uri(folder)
    found: dict[PurePosixPath, str] = {}
    for info in filesystem.get_file_info(FileSelector(place, recursive=True)):
        if info.extension.lower() in _SUFFIXES:
            item = PurePosixPath(info.path).with_suffix("")
            if item in found:
                raise ValueError(f"{found[item]} and {info.path} would be one item: rename one")
            found[item] = info.path
    files = ray.data.read_binary_files(folder, include_paths=True, file_extensions=_SUFFIXES)
    root = folder.partition("://")[2] or folder
    return files.map_batches(partial(_named, root=root), batch_format="pyarrow")


def _named(rows: pa.Table, root: str) -> pa.Table:
    files = [PurePosixPath(path).relative_to(root) for path in rows["path"].to_pylist()]
    named = rows.append_column("id", pa.array([str(each.with_suffix("")) for each in files]))
    return named.append_column("file", pa.array([str(each) for each in files]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tandem_ray", description=__doc__)
    add = parser.add_argument
    add("source", help="a folder of pictures; with --content-column, parquet files")
    add("--index", required=True, help="index to store into")
    add("--state", required=True, help="folder or URI that keeps what was sent")
    add("--address", default="127.0.0.1:7400", help="an orchestrator")
    add("--id-column", default="id", help="of parquet files: unique ids")
    add("--content-column", help="of parquet files: texts, or the bytes of pictures")
    add("--streams", type=int, default=4, help="tasks that send at once")
    add("--rows-per-task", type=int, default=512, help="rows that a kill sends again at most")
    return parser


if __name__ == "__main__":
    main()
