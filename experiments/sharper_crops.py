"""Do sharper training crops help?

    python experiments/sharper_crops.py SETS [--sizes 64 128] [--epochs 40]

SETS has flowers17 and dtd10, each with train and test. MAST-5 is trained, with a small ResNet, from
canvases of 9/8 of the views' side, whose crops have about 60 % of the gradient energy of the
originals', and from those of 2.75 times, with 98 %; all else is equal, test views too. Run again,
it goes on.
"""

import argparse
import json
from pathlib import Path

import torch

import mast
from mast.core.checkpoint import write_json
from mast.core.run import provenance

RESULT = Path(__file__).parent / "results" / "sharper_crops.json"
ENCODER = {
    "name": "timm:resnet18",
    "options": {"layers": [1, 1, 1, 1], "channels": [32, 64, 128, 256]},
    "stem_stride": 2,
}
CANVASES = {"soft": 9 / 8, "sharp": 2.75}
SEEDS = range(3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sets", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(RESULT.read_text())["runs"] if RESULT.is_file() else []
    for size in options.sizes:
        for name in ("flowers17", "dtd10"):
            for seed in SEEDS:
                for canvas, width in CANVASES.items():
                    key = {"set": name, "size": size, "seed": seed, "canvas": canvas}
                    key |= {"epochs": options.epochs}
                    if any(run.items() >= key.items() for run in found):
                        continue
                    config = mast.configure(
                        "mast_c5_distance_small",
                        {"spec": str(options.sets / name / "train"), "canvas": round(width * size)},
                        encoder=ENCODER, size=size, seed=seed, epochs=options.epochs,
                        batch_size=64, device="cpu",
                        out=str(options.out / "-".join(map(str, key.values()))),
                    )  # fmt: skip
                    run = mast.pretrain(config)
                    results = mast.evaluate(run.path, options.sets / name, ("knn", "linear"))
                    measured = {each.protocol: each.targets["class"].values for each in results}
                    found.append(key | {of: values["top1"] for of, values in measured.items()})
                    write_json(RESULT, {"runs": found, "provenance": provenance()})


if __name__ == "__main__":
    main()
