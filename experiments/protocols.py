"""Do the probes agree? CIFAR-10: a random ResNet-18 and two runs, by kNN, L-BFGS and SGD.

    python experiments/protocols.py --sets SETS --out runs

Pretrains MAST-5 and VICReg for a few minutes each, evaluates them and torchvision's ResNet-18 with
random weights, and compares them; runs and evaluations that are there are kept. The L-BFGS probe of
MAST-5 is held against scikit-learn's `LogisticRegression` at the penalty that validation chose.
Writes results/protocols.json, and the result files of every encoder to results/protocols/.
"""

import argparse
import shutil
import time
from dataclasses import replace
from pathlib import Path

import torch
from does_it_help import link_pretraining_images
from sklearn.linear_model import LogisticRegression

import mast
from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.data import open_canvas
from mast.data.sources import default_cache
from mast.measure.accuracy import accuracy
from mast.measure.compare import compare
from mast.measure.frozen import FrozenEncoder
from mast.measure.result import Result
from mast.measure.sets import EvaluationData, tasks
from mast.measure.store import FeatureStore, fingerprint
from mast.models import Encoder, EncoderConfig, load_encoder
from mast.protocols import Linear
from mast.protocols.run import EvaluationSettings, evaluate_encoder

RESULTS = Path(__file__).parent / "results"
SIZE = 32
RECIPES = ("vicreg5_small", "mast5_small")
NARROW = {
    "layers": [1, 1, 1, 1],
    "channels": [32, 64, 128, 256],
    "stem_type": "deep",
    "stem_width": 16,
}
PROTOCOLS = ("knn", "linear", "linear_sgd")
SETTINGS = EvaluationSettings(
    protocols={"linear_sgd": {"epochs": 3, "learning_rates": [0.2, 2.0, 20.0]}}
)


def pretrained(recipe: str, sets: Path, out: Path) -> Path:
    """A run of a recipe on 10,000 training images of CIFAR-10."""
    config = mast.configure(
        recipe,
        data=str(sets / "cifar10-10k"),
        out=str(out / f"{recipe}-cifar10"),
        size=SIZE,
        epochs=5,
        batch_size=64,
        encoder={"name": "timm:resnet18", "options": NARROW},
        threads=torch.get_num_threads(),
    )
    return mast.pretrain(config).path


def random_resnet18() -> Encoder:
    """torchvision's ResNet-18 as it starts, with its own stem."""
    torch.manual_seed(0)
    return Encoder(EncoderConfig("torchvision:resnet18", stem="standard"), SIZE).eval()


def frozen(encoder: Encoder, source: str) -> FrozenEncoder:
    """The encoder with its features kept in the cache."""
    identity = fingerprint(encoder, encoder.describe())
    return FrozenEncoder(
        encoder,
        store=FeatureStore(default_cache() / "features", identity),
        description={"source": source, "fingerprint": identity, **encoder.describe()},
    )


def against_sklearn(encoder: FrozenEncoder, data: EvaluationData) -> dict[str, float]:
    """Top-1 of our optimum and of scikit-learn's, at the penalty that validation chooses."""
    pool_ND, test_MD = encoder.pool_features(data.pool, SIZE), encoder.features(data.test, SIZE)
    (task,) = tasks(data, seed=0)
    learned = Linear().learn(pool_ND, task)
    model = LogisticRegression(C=1 / (len(pool_ND) * learned.penalty), tol=1e-7, max_iter=5000)
    start = time.monotonic()
    model.fit(pool_ND.double().numpy(), task.pool_labels_N.numpy())
    seconds = time.monotonic() - start
    theirs = torch.from_numpy(model.decision_function(test_MD.double().numpy()))
    return {
        "penalty": learned.penalty,
        "ours": accuracy(learned.scores(test_MD), task.test_labels_M, "top1"),
        "scikit-learn": accuracy(theirs, task.test_labels_M, "top1"),
        "iterations of scikit-learn": int(model.n_iter_.max()),
        "seconds of scikit-learn": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    link_pretraining_images(options.sets)
    encoders = {"resnet18-random": random_resnet18()}
    for recipe in RECIPES:
        encoders[f"{recipe}-cifar10"] = load_encoder(pretrained(recipe, options.sets, options.out))
    train, test = (
        open_canvas(str(options.sets / "cifar10" / part), SIZE) for part in ("train", "test")
    )
    data = EvaluationData(train, None, test, SIZE)
    for name, encoder in encoders.items():
        folder = options.out / name
        missing = [
            protocol
            for protocol in PROTOCOLS
            if not list((folder / "evaluations").glob(f"{protocol}-*.json"))
        ]
        one = frozen(encoder, name)
        evaluate_encoder(one, data, missing, SETTINGS, lambda result, at=folder: result.write(at))
        kept = RESULTS / "protocols" / name
        shutil.rmtree(kept, ignore_errors=True)
        for file in (folder / "evaluations").glob("*.json"):
            # Named as below SETS, wherever that is.
            replace(Result.read(file), set_name="cifar10/test").write(kept)
    compared = compare([RESULTS / "protocols" / name for name in encoders])
    write_json(
        RESULTS / "protocols.json",
        {
            "agreement with scikit-learn": against_sklearn(
                frozen(encoders["mast5_small-cifar10"], ""), data
            ),
            "runs": compared.runs,
            "notes": compared.notes,
            "rows": [
                {
                    "measure": " ".join(row.heading),
                    "values": row.values,
                    "differences": [
                        None if d is None else [d.value, d.low, d.high] for d in row.differences
                    ],
                }
                for row in compared.rows
            ],
            "provenance": provenance(),
        },
    )


if __name__ == "__main__":
    main()
