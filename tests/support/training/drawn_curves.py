"""Writes a loss curve, and counts the lines that a plot of it shows."""

import json
from pathlib import Path

from PIL import Image

from tandem.lab.training.runs.loss_curve import FILE_NAME


def write_curve(folder: Path, *, with_ce: bool, round_count: int = 30) -> None:
    folder.mkdir()
    lines = []
    for round_number in range(1, round_count + 1):
        line: dict[str, object] = {"round": round_number, "seconds": 2.0 * round_number}
        line["be_loss"] = 3.0 / round_number
        if with_ce:
            line["ce_loss"] = 0.7
        if round_number % 10 == 0:
            ce_r1 = 50.0 if with_ce else None
            line["dev_recall_percent"] = {"be_r1": 20.0, "be_r10": 80.0, "ce_r1": ce_r1}
        lines.append(json.dumps(line))
    (folder / FILE_NAME).write_text("\n".join(lines) + "\n")


def colours(path: Path) -> int:
    with Image.open(path) as image:
        counted = image.convert("RGB").getcolors(2**20) or []
    return sum(count > 50 and max(colour) - min(colour) > 100 for count, colour in counted)  # type: ignore[arg-type]
