"""The main job on real photos: pretrain on Flowers-17's training images, probe, write the result.

    python experiments/flowers.py --sets SETS --run RUN

RUN is a run folder made by the pretraining command that is recorded in the result; it is evaluated
beside the same encoder untrained, with val as the tuning set and test as the score.
"""

import argparse
import json
from pathlib import Path

from mast.config import build_method
from mast.config import read as read_config
from mast.core.checkpoint import write_json
from mast.core.run import RunFolder, provenance
from mast.data import open_canvas
from mast.measure.sets import EvaluationData
from mast.models import Encoder, load_encoder
from mast.protocols.run import evaluate_encoder

PROTOCOLS = ("knn", "linear")


def scores(encoder: Encoder, data: EvaluationData) -> dict[str, dict[str, float]]:
    """Top-1 and its interval by protocol."""
    return {
        result.protocol: {
            key: result.targets["class"].values[key] for key in ("top1", "top1_low", "top1_high")
        }
        for result in evaluate_encoder(encoder, data, PROTOCOLS)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    options = parser.parse_args()
    run = RunFolder(options.run).require()
    config = read_config(run.config)
    train, val, test = (
        open_canvas(str(options.sets / "flowers17" / part), config.size)
        for part in ("train", "val", "test")
    )
    data = EvaluationData(train, val, test, config.size)
    logged = [line for line in run.read_metrics() if "images_per_second" in line]
    write_json(
        Path(__file__).parent / "results" / "flowers17.json",
        {
            "commands": [
                f"mast pretrain --data flowers17/train --recipe {config.recipe} "
                f"--epochs {config.epochs} --batch_size {config.batch_size} "
                f"--precision {config.precision} --out runs/flowers",
                "mast evaluate runs/flowers --data flowers17 --protocols knn linear",
            ],
            "encoders": {
                f"untrained {config.encoder.name}": scores(
                    build_method(config).encoder.eval(), data
                ),
                config.recipe: scores(load_encoder(run.path), data),
            },
            "minutes": logged[-1]["seconds"] / 60,
            "threads": json.loads(run.provenance.read_text())["threads"],
            "provenance": provenance(),
        },
    )


if __name__ == "__main__":
    main()
