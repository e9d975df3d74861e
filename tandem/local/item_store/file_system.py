"""Finds the file system of a folder, and refuses those that LMDB cannot trust."""

import re
from pathlib import Path

from tandem.local.item_store.refused import StoreRefused

MOUNTS = Path("/proc/self/mountinfo")

# On these, machines may see different locks and mapped pages, and a synced write may be lost. Plain
# FUSE is not listed: it may have any file system under it.
_NETWORK_TYPES = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs", "fuse.ceph", "fuse.gcsfuse"),
        *("fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def check_file_system(path: Path) -> None:
    """Raises StoreRefused where the path, which need not exist yet, is on a network file system."""
    kind = file_system_type(path)
    if kind in _NETWORK_TYPES:
        raise StoreRefused(
            f"{path} is on a network file system ({kind}), where acknowledged writes can be lost: "
            "put it on a local disk"
        )


def file_system_type(path: Path) -> str:
    """Returns the type of the path's file system; empty where it is unknown."""
    resolved, found, found_length = path.resolve(), "", -1
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        # 36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw
        mount, _, rest = line.partition(" - ")
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), mount.split(" ")[4]))
        # A later mount at the same point hides the earlier one.
        if resolved.is_relative_to(point) and len(point.parts) >= found_length:
            found, found_length = rest.split(" ")[0], len(point.parts)
    return found
