"""Networks of published accuracy, measured: is a module of your own scored right?

    git clone https://github.com/akamaster/pytorch_resnet_cifar10
    python benchmarks/known_accuracy.py pytorch_resnet_cifar10 cifar10 [--depths 20 56]

The clone holds ResNets that were trained on CIFAR-10's labels, and its README says their test
errors. Its weights are read; none of its code is run. `cifar10` has `train` and `test`, a folder a
class. Each network is measured by its own head, on the pixels that an evaluation shows it, and,
without the head, by `mast.evaluate`. Its representation was made for these classes, so kNN and the
linear probe should come close to the head. A ResNet-20 takes three minutes on one core.
"""

import argparse
import hashlib
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock
from torchvision.transforms.v2 import Normalize

import mast
from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.data import open_canvas
from mast.encoders.extract import extract
from mast.evaluation.intervals import wilson
from mast.models.encoders import IMAGENET

REPOSITORY = "akamaster/pytorch_resnet_cifar10"
PUBLISHED = {20: 91.73, 32: 92.63, 44: 93.10, 56: 93.39}  # 100 % minus the README's test error
PROTOCOLS = ("knn", "linear")
SIZE = 32
WIDTHS = (16, 32, 64)


class Shortcut(nn.Module):
    """Every other pixel, with as many channels of zeros on either side: option A of He et al."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        added = images_BCHW.shape[1] // 2
        return nn.functional.pad(images_BCHW[:, :, ::2, ::2], (0, 0, 0, 0, added, added))


def resnet(depth: int, classes: int) -> nn.Sequential:
    """The ResNet for CIFAR-10 of He et al. (2016), section 4.2, with 6n + 2 layers."""
    network = nn.Sequential()
    network.add_module("conv1", nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False))
    network.add_module("bn1", nn.BatchNorm2d(WIDTHS[0]))
    network.add_module("relu", nn.ReLU())
    before = WIDTHS[0]
    for stage, width in enumerate(WIDTHS, start=1):
        first = BasicBlock(before, width) if before == width else BasicBlock(
            before, width, stride=2, downsample=Shortcut()
        )  # fmt: skip
        others = (BasicBlock(width, width) for _ in range((depth - 2) // 6 - 1))
        network.add_module(f"layer{stage}", nn.Sequential(first, *others))
        before = width
    network.add_module("pool", nn.AdaptiveAvgPool2d(1))
    network.add_module("flatten", nn.Flatten())
    network.add_module("linear", nn.Linear(before, classes))
    return network


def published_weights(clone: Path, depth: int) -> tuple[dict[str, Tensor], str]:
    """A state dict of the clone and the file's SHA-256, with which its name ends."""
    found = sorted((clone / "pretrained_models").glob(f"resnet{depth}-*.th"))
    if len(found) != 1:
        raise SystemExit(f"expected one pretrained_models/resnet{depth}-*.th in {clone}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if not digest.startswith(found[0].stem.partition("-")[2]):
        raise SystemExit(f"{found[0]} has the SHA-256 {digest}: not what its name says")
    state = torch.load(found[0], map_location="cpu", weights_only=True)["state_dict"]
    return {key.removeprefix("module."): value for key, value in state.items()}, digest


def by_own_head(network: nn.Module, cifar10: Path) -> dict[str, float]:
    """Top-1 of the network's logits on the test images, with Wilson's interval."""
    tested = open_canvas(cifar10 / "test", SIZE)
    (label_N,) = tested.targets.values()
    told_N = extract(network, tested, SIZE).argmax(dim=1)
    right = int((told_N == torch.as_tensor(label_N)).sum())
    low, high = wilson(right, len(tested))
    return {"top1": 100 * right / len(tested), "low": 100 * low, "high": 100 * high}


def measured(clone: Path, cifar10: Path, depth: int) -> dict[str, Any]:
    """One network, by its own head and by the protocols."""
    state, digest = published_weights(clone, depth)
    network = resnet(depth, len(state["linear.bias"]))
    network.load_state_dict(state)  # every key, or an error
    encoder = nn.Sequential(Normalize(*IMAGENET), network).eval()
    values = {"its own head": by_own_head(encoder, cifar10)}
    network.linear = nn.Identity()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # results would go to runs/
        results = mast.evaluate(encoder, cifar10, list(PROTOCOLS), size=SIZE)
    for result in results:
        (target,) = result.targets.values()
        values[result.protocol] = {
            name: target.values[f"top1{end}"]
            for name, end in (("top1", ""), ("low", "_low"), ("high", "_high"))
        }
    return {
        "depth": depth, "sha256": digest, "published": PUBLISHED[depth], "measured": values,
        "images": results[0].sizes, "duplicates": results[0].duplicates,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("clone", type=Path, help=f"of {REPOSITORY}")
    parser.add_argument("cifar10", type=Path, help="CIFAR-10: train and test, a folder per class")
    parser.add_argument("--depths", type=int, nargs="+", default=[20], choices=PUBLISHED)
    options = parser.parse_args()
    rows = []
    for depth in options.depths:
        rows.append(measured(options.clone.resolve(), options.cifar10.resolve(), depth))
        print(rows[-1], flush=True)
    result = {
        "setting": {"repository": REPOSITORY, "size": SIZE, "protocols": PROTOCOLS},
        "networks": rows,
        "provenance": provenance(),
    }
    write_json(RESULTS / "known_accuracy.json", result)


if __name__ == "__main__":
    main()
