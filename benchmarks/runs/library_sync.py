"""Changes a library on disk again and again, and looks whether `tandem sync` keeps an index equal.

    python -m benchmarks.runs.library_sync [--files 20000] [--kills 20]
    python -m benchmarks.runs.library_sync --files 2000      # the short form

A whole Tandem on this machine with the bundled model and two shards, and a library of drawings and
made photographs: JPEG, PNG and WebP, odd names, captions, pairs of one picture in two formats,
broken files, sidecars, thumbnails of a network drive, and notes. It is stored; folders and files
are renamed, edited, deleted, added and swapped, and it is synchronised; then the same while the
command, the shards and the orchestrator are killed in turn by `kill -9`. After each step, every id,
content and file name of the index is compared with what the library was made of, and the rows that
the encoder sent to the model are compared with what was new.

Prints one JSON line, and exits 1 where the index differs, a renamed file was encoded, or a kill
wasted more than two batches.
"""

import argparse
import io
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unicodedata
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tandem.client import Client
from tandem.contract.content import content_bytes
from tandem.contract.filtering.attributes import value_fault
from tandem.corpus.scenes.records import scene_records
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.fresh_export import export_if_stale
from tandem.stack.stack import LocalStack, Ports

INDEX_ID = "library"
FORMATS = (("JPEG", ".jpg"), ("PNG", ".png"), ("WEBP", ".webp"), ("JPEG", ".JPG"))
ODD_NAMES = (
    "Zürich",
    "Zu\u0308rich",
    "a b  c",
    "猫",
    "🐦",
    "it's",
    'q"uote',
    "50%",
    "x.y",
    "#1",
    "a\nb",
)
WASTED_COUNT = 2 * 32
SIDE = 96
FETCHED_COUNT = 64


class Library:
    """A folder, and what it was made of."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.pictures: dict[str, bytes] = {}
        """Of the files that can be stored, by path."""
        self.captions: dict[str, str] = {}
        """By the path of their picture."""
        self._drawings = [
            Image.open(io.BytesIO(each.image.read())).convert("RGB").resize((SIDE, SIDE))
            for each in scene_records("test", 50, 40)
        ]
        self._made_count = 0

    def fill(self, count: int) -> None:
        """Makes a folder of about `count` files."""
        for number in range(int(count * 0.8)):
            odd = f" {self.rng.choice(ODD_NAMES)}" if number % 23 == 0 else ""
            self.add(f"{2000 + number % 12}/{number % 40:02}{odd}/IMG_{number:05}")
        for number in range(int(count * 0.02)):
            pair = self.add(f"pairs/P{number:04}", 0)
            second = [(".HEIC", b"\0\0\0\x18ftypheic" + bytes(40)), (".png", self.picture(1))]
            suffix, data = second[number % 2]
            self.write(pair.removesuffix(".jpg") + suffix, data)
            self.write(f"broken/B{number:04}.jpg", self.picture(0)[: (number % 3) * 300])
        for number in range(int(count * 0.04)):
            folder = f"{2000 + number % 12}/{number % 40:02}"
            self.write(f"{folder}/IMG_{number:05}.xmp", b"<x/>")
            self.write(f"{folder}/@eaDir/IMG_{number:05}.jpg/SYNO_THUMB_M.jpg", self.picture(0))
            self.write(f"{folder}/README.txt", b"taken with the old camera")

    def add(self, stem: str, form: int | None = None) -> str:
        """Adds a picture, one of eight with a caption; returns its path."""
        form = self._made_count % len(FORMATS) if form is None else form
        path = stem + FORMATS[form][1]
        self.pictures[path] = self.picture(form)
        self.write(path, self.pictures[path])
        if self._made_count % 8 == 0:
            self.captions[path] = f"{self._made_count % 9} birds at number {self._made_count}"
            self.write(f"{stem}.txt", self.captions[path].encode())
        return path

    def picture(self, form: int) -> bytes:
        """Returns a picture that no other one is equal to: a drawing, or one like a photograph."""
        self._made_count += 1
        number = self._made_count
        drawn = self._drawings[number % len(self._drawings)].copy()
        if number % 3 == 0:
            noise = np.random.default_rng(number).integers(0, 255, (12, 12, 3), np.uint8)
            drawn = Image.fromarray(noise).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        bits = [255 * (number >> bit & 1) for bit in range(32)]
        drawn.paste(
            Image.fromarray(np.array(bits, np.uint8).reshape(4, 8)).resize((32, 16)), (0, 0)
        )
        file = io.BytesIO()
        drawn.save(file, FORMATS[form][0])
        return file.getvalue()

    def write(self, path: str, data: bytes) -> None:
        """Writes a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def change(self, share: float) -> Counter[str]:
        """Changes a share of the library in each way; returns the items that are new by way."""
        new: Counter[str] = Counter()
        count = max(2, int(len(self.pictures) * share))
        folders = sorted({path.rpartition("/")[0] for path in self.pictures} - {"pairs"})
        for folder in self.rng.sample(folders, max(2, len(folders) // 20)):
            self._rename_folder(folder, f"{folder} moved {self._made_count}")
            self._made_count += 1
        for path in self._some(count):
            self._move(path, self._next_stem() + Path(path).suffix)
        for path in self._some(count):
            data = self.picture(self._form(path))
            self.pictures[path] = data
            self.write(path, data)
            new["edited"] += 1
        for path in self._some(count):
            self._delete(path)
        for _ in range(count):
            path = self.add(self._next_stem())
            new["added"] += 1 + (path in self.captions)
        for one, two in zip(*[iter(self._some(6))] * 2, strict=True):
            if self._form(one) == self._form(two):
                self._swap(one, two)
                new["swapped"] += 1
        self._shift(self._some(12))
        return new

    def expected(self) -> dict[str, tuple[bytes, object]]:
        """Returns the content and the attribute `file` that the index is to have, by id."""
        found: dict[str, tuple[bytes, object]] = {}
        for path, data in self.pictures.items():
            stem = unicodedata.normalize("NFC", path.rpartition(".")[0])
            file = path if value_fault("file", path) is None else None
            found[stem] = data, file
            if path in self.captions:
                found[f"{stem}#en-0"] = self.captions[path].encode(), file
        return found

    def _some(self, count: int) -> list[str]:
        return self.rng.sample([each for each in self.pictures if "pairs" not in each], count)

    def _form(self, path: str) -> int:
        return next(n for n, (_, suffix) in enumerate(FORMATS) if path.endswith(suffix))

    def _next_stem(self) -> str:
        self._made_count += 1
        return f"new {self._made_count % 7}/N{self._made_count:06}"

    def _delete(self, path: str) -> None:
        (self.folder / path).unlink()
        del self.pictures[path]
        if self.captions.pop(path, None):
            (self.folder / path).with_suffix(".txt").unlink()

    def _move(self, path: str, target: str) -> None:
        caption = self.captions.get(path)
        data = self.pictures[path]
        stat = (self.folder / path).stat()
        self._delete(path)
        self.write(target, data)
        os.utime(self.folder / target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        self.pictures[target] = data
        if caption is not None:
            self.captions[target] = caption
            self.write(str(Path(target).with_suffix(".txt")), caption.encode())

    def _rename_folder(self, folder: str, target: str) -> None:
        (self.folder / folder).rename(self.folder / target)
        both: list[dict[str, Any]] = [self.pictures, self.captions]
        for of_paths in both:
            for path in [each for each in of_paths if each.startswith(f"{folder}/")]:
                of_paths[target + path.removeprefix(folder)] = of_paths.pop(path)

    def _swap(self, one: str, two: str) -> None:
        first, second = self.folder / one, self.folder / two
        third = first.with_name("swap")
        first.rename(third)
        second.rename(first)
        third.rename(second)
        self.pictures[one], self.pictures[two] = self.pictures[two], self.pictures[one]

    def _shift(self, paths: Sequence[str]) -> None:
        """Renames each picture to the next one's name, the last to a new one."""
        chain = [each for each in paths if self._form(each) == self._form(paths[0])]
        chain.append(self._next_stem() + Path(paths[0]).suffix)
        self.write(chain[-1], b"")
        for name, target in reversed(list(itertools.pairwise(chain))):
            (self.folder / name).rename(self.folder / target)
            self.pictures[target] = self.pictures.pop(name)
        # The first name's caption has no picture now.
        if self.captions.pop(chain[0], None):
            (self.folder / chain[0]).with_suffix(".txt").unlink()


class Run:
    """The commands over one library and one Tandem."""

    def __init__(self, stack: LocalStack, library: Library, state: Path) -> None:
        self.stack, self.library = stack, library
        self._environment = {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONUNBUFFERED": "1"}
        self.wrong: list[str] = []
        self.longest_pause_seconds = 9.0
        """Between two kills: so that some find a command at each part of its work."""

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Starts a `tandem sync`."""
        words = ["sync", str(self.library.folder), "--index", INDEX_ID, *options]
        return subprocess.Popen(
            [sys.executable, "-m", "tandem.cli", *words, "--address", self.stack.address],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def step(self, name: str, new_count: int, kill_count: int = 0) -> dict[str, Any]:
        """Synchronises `new_count` new items, and compares."""
        before, begin_time = encoded_count(self.stack), time.monotonic()
        said, more_count = self.killed(kill_count)
        new_count += more_count
        process = self.start("--max-removed-share", "0.5")
        said += process.communicate()[0]
        seconds = time.monotonic() - begin_time
        row_count = encoded_count(self.stack) - before
        differing = self.differing()
        if differing:
            self.wrong.append(f"{name}: {len(differing)} differ, {differing[:3]}")
        if row_count > new_count + WASTED_COUNT * kill_count:
            self.wrong.append(f"{name}: {row_count} encoded, {new_count} new")
        print(f"-- {name}\n{said}", file=sys.stderr, flush=True)
        return {
            "step": name,
            "seconds": round(seconds, 1),
            "encoded_count": row_count,
            "new_count": new_count,
            "differing_count": len(differing),
            "status": process.returncode,
            **({"kill_count": kill_count} if kill_count else {}),
        }

    def killed(self, count: int) -> tuple[str, int]:
        """Kills commands, shards and orchestrators while commands work, `count` times in all.

        The library changes again when a command ends. Returns what they printed, and how many items
        were new.
        """
        said, process, number, new_count = "", None, 0, 0
        while number < count:
            if process is None or process.poll() is not None:
                if process:
                    said += process.communicate()[0]
                    new_count += self.library.change(0.05).total()
                process = self.start("--max-removed-share", "0.5")
            time.sleep(self.library.rng.uniform(1.5, self.longest_pause_seconds))
            victim = ("command", "index-0", "command", "orchestrator", "index-1")[number % 5]
            if process.poll() is not None:
                continue
            number += 1
            if victim == "command":
                process.kill()
                said += process.communicate()[0]
                process = None
            else:
                self.stack.kill_service(victim)
                time.sleep(self.library.rng.uniform(0.0, 3.0))
                self.stack.start_service(victim)
                self.stack.wait_until_serving(victim, time.monotonic() + 120)
        return said + (process.communicate()[0] if process else ""), new_count

    def differing(self) -> list[str]:
        """Returns the ids that the index lacks, has too many, or has as something else."""
        expected = self.library.expected()
        with Client(self.stack.address, timeout_seconds=60) as client:
            ids = [each.item_id for each in client.list_items(index_id=INDEX_ID)]
            found: dict[str, tuple[bytes, object]] = {}
            for start in range(0, len(ids), FETCHED_COUNT):
                some = ids[start : start + FETCHED_COUNT]
                for item in client.fetch_items(some, index_id=INDEX_ID):
                    assert item.content is not None
                    content = content_bytes(item.content)
                    found[item.item_id] = content, item.attributes.get("file")
        every = expected.keys() | found.keys()
        return sorted(each for each in every if expected.get(each) != found.get(each))


def encoded_count(stack: LocalStack) -> int:
    """Returns the items that the encoder had the model embed, without its canaries."""
    with urllib.request.urlopen(stack.metrics_url("encoder"), timeout=30) as page:
        lines = page.read().decode().splitlines()
    rows = (
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("tandem_triton_request_rows_sum{")
        and 'model="joint_encoder"' in line
        and 'purpose="canary"' not in line
    )
    return int(sum(rows))


def run(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Returns the result, and what was wrong."""
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(dir=arguments.work) as name:
        folder = Path(name)
        library = Library(folder / "photos", rng)
        library.fill(arguments.files)
        file_count = sum(each.is_file() for each in library.folder.rglob("*"))
        ports = Ports.free(shard_count=2)
        repository = folder / "model_repository"
        export_if_stale(default_checkpoint(), repository)
        with LocalStack(folder / "data", repository, ports, caches=False) as stack:
            stack.start()
            ran = Run(stack, library, folder / "state")
            time.sleep(3.0)  # Files of the last seconds are read twice.
            # Broken files are refused by the encoder before the model.
            steps = [ran.step("store", len(library.expected())), ran.step("unchanged", 0)]
            ran.longest_pause_seconds = max(4.0, 1.2 * steps[1]["seconds"])
            steps += [
                ran.step("changed", library.change(0.02).total()),
                ran.step("unchanged again", 0),
                ran.step("killed", library.change(0.15).total(), arguments.kills),
                ran.step("unchanged at last", 0),
            ]
        return {
            "run": "library sync",
            "file_count": file_count,
            "item_count": len(library.expected()),
            "steps": steps,
            "wrong": ran.wrong,
        }, ran.wrong


def main() -> None:
    """Prints one JSON line, and exits 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="a library that changes, under kill -9")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=None, help="folder for library and stores")
    result, wrong = run(parser.parse_args())
    print(json.dumps(result))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
