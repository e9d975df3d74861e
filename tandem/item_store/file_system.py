"""Which file system a folder is on, and whether LMDB can trust it."""

import re
from pathlib import Path

from tandem.item_store.refused import StoreRefused

MOUNTS = Path("/proc/self/mountinfo")

# On these a lock or a mapped page of one machine need not be what another sees, and a write may be
# lost after it was synced. Plain FUSE is not among them: what is behind it is not known.
_NETWORK_TYPES = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
    }
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def check_file_system(path: Path) -> None:
    """Raises StoreRefused where the path, which need not exist yet, is on a network's disk."""
    kind = file_system_type(path)
    if kind in _NETWORK_TYPES:
        raise StoreRefused(
            f"{path} is on a network file system ({kind}), where acknowledged writes can be lost: "
            "put it on a disk of this machine"
        )


def file_system_type(path: Path) -> str:
    """Returns the type of the file system that the path is on; empty where it is not known."""
    resolved, found, found_length = path.resolve(), "", -1
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    for line in lines:
        # 36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw
        mount, _, rest = line.partition(" - ")
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), mount.split(" ")[4]))
        # Of two mounts at one point the later one is seen.
        if resolved.is_relative_to(point) and len(point.parts) >= found_length:
            found, found_length = rest.split(" ")[0], len(point.parts)
    return found
