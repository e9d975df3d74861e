"""Measures stored, pooled and recomputed image tokens: bytes, time and recall.

    python -m benchmarks.runs.token_sources [--pictures 200] [--seed 11] [--blip]

Recall is the shipped model's on held-out scenes: the bi-encoder finds 20 pictures from full tokens,
and the cross-encoder reranks them from the tokens of each source. `--blip` adds times and bytes of
a BLIP of its published size (384 pixels, ViT-B) with random weights: 0.9 GB and a few minutes. One
thread; prints one JSON line a model. Shapes: N pictures, Q texts, R tokens, D width, K candidates.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.image import decode_image
from tandem.model_io.text import TextPreprocessor
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.pooled_tokens import pooled
from tandem.modeling.joint_model import JointModel

_CANDIDATE_COUNT = 20
_REPEATS = 5


@torch.inference_mode()
def main() -> None:
    """Prints what each source costs, and what it loses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=200, help="a multiple of 4")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--blip", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(_shipped(list(scene_records("test", options.seed, options.pictures)))))
    if options.blip:
        print(json.dumps(_blip(options.seed)))


def _shipped(records: list[Record]) -> dict[str, Any]:
    checkpoint = load_checkpoint(default_checkpoint())
    model = checkpoint.model
    rules = model.config.image_rules
    started = time.process_time()
    pixels = np.stack([decode_image(record.image.read(), rules) for record in records])
    decode_ms = 1e3 * (time.process_time() - started) / len(records)
    stored_NRD = model.image_backbone(torch.from_numpy(pixels))
    again_NRD = torch.cat([model.image_backbone(torch.from_numpy(row[None])) for row in pixels])
    candidates = _candidates(checkpoint, records, stored_NRD)
    sources = {"stored": stored_NRD, "pooled": pooled(stored_NRD), "recomputed": again_NRD}
    report: dict[str, Any] = {"model": "shipped, fp32", "pictures": len(records)}
    for name, tokens_NRD in sources.items():
        ids_1T, mask_1T = _ids(checkpoint, records[0])
        batch = tokens_NRD[:24]
        call = (ids_1T.expand(len(batch), -1), mask_1T.expand(len(batch), -1), batch)
        report[name] = {
            "bytes_a_picture": 0 if name == "recomputed" else tokens_NRD[0].nbytes,
            "ms_a_pair": _ms(lambda call=call: model.match_logits(*call), len(batch)),  # type: ignore[misc]
            "recall_at_1": _recall(checkpoint, records, tokens_NRD, candidates),
        }
    one = torch.from_numpy(pixels[:1])
    report["recomputed"]["ms_a_picture"] = {
        "decode": round(decode_ms, 2),
        "image_side": _ms(lambda: model.image_backbone(one), 1),
    }
    report["bi_encoder_recall_at_1"] = round(
        float(np.mean([row == ranked[0] for row, ranked in enumerate(candidates)])), 4
    )
    return report


def _ids(checkpoint: Checkpoint, record: Record) -> tuple[Tensor, Tensor]:
    texts = TextPreprocessor(checkpoint.tokenizer, checkpoint.model.config.max_text_tokens)
    caption = next(each for each in record.captions if each.language == "en")
    ids_1T = torch.from_numpy(texts.token_ids(caption.text)).long()[None]
    return ids_1T, torch.ones_like(ids_1T)


def _candidates(
    checkpoint: Checkpoint, records: list[Record], tokens_NRD: Tensor
) -> list[list[int]]:
    """Returns each text's candidates, best first."""
    model: JointModel = checkpoint.model
    cls_id = checkpoint.tokenizer.encode("").ids[0]
    images_Nd = model.embed_images(tokens_NRD, cls_id)
    found = []
    for record in records:
        similarities = images_Nd @ model.embed_texts(*_ids(checkpoint, record))[0]
        found.append(similarities.topk(min(_CANDIDATE_COUNT, len(records))).indices.tolist())
    return found


def _recall(
    checkpoint: Checkpoint,
    records: list[Record],
    tokens_NRD: Tensor,
    candidates: list[list[int]],
) -> float:
    hits = 0
    for number, (record, rows) in enumerate(zip(records, candidates, strict=True)):
        ids_1T, mask_1T = _ids(checkpoint, record)
        logits_K = checkpoint.model.match_logits(
            ids_1T.expand(len(rows), -1), mask_1T.expand(len(rows), -1), tokens_NRD[rows]
        )
        hits += rows[int(logits_K.argmax())] == number
    return round(hits / len(records), 4)


def _blip(seed: int) -> dict[str, Any]:
    from transformers import BlipConfig, BlipForImageTextRetrieval

    from tandem.modeling.families.blip import BlipImage, BlipPair
    from tandem.modeling.families.image_rules import PixelScale

    torch.manual_seed(seed)
    model = BlipForImageTextRetrieval(BlipConfig()).eval()
    image = BlipImage(model, PixelScale(1 / 255, (0.5,) * 3, (0.25,) * 3))
    pair = BlipPair(model)
    side = model.config.vision_config.image_size
    pixels = torch.randint(0, 256, (1, side, side, 3), dtype=torch.uint8)
    stored_1RD = image(pixels)[1]
    report: dict[str, Any] = {"model": f"BLIP base, {side} pixels, random weights, fp32"}
    for name, tokens_1RD in {"stored": stored_1RD, "pooled": pooled(stored_1RD)}.items():
        tokens_4RD = tokens_1RD.expand(4, -1, -1)
        ids_4T = torch.randint(1000, 2000, (4, 12))
        present = torch.ones(tokens_4RD.shape[:2], dtype=torch.int64)
        call = (ids_4T, torch.ones_like(ids_4T), tokens_4RD, present)
        report[name] = {
            "tokens": tokens_1RD.shape[1],
            "bytes_a_picture": tokens_1RD[0].nbytes,
            "ms_a_pair": _ms(lambda call=call: pair(*call), 4),  # type: ignore[misc]
        }
    report["recomputed"] = {"bytes_a_picture": 0, "ms_a_picture": _ms(lambda: image(pixels), 1)}
    return report


def _ms(run: Callable[[], Any], count: int) -> float:
    """Returns the median milliseconds of CPU time for each of `count` rows."""
    run()
    seconds = []
    for _ in range(_REPEATS):
        started = time.process_time()
        run()
        seconds.append(time.process_time() - started)
    return round(1e3 * float(np.median(seconds)) / count, 2)


if __name__ == "__main__":
    main()
