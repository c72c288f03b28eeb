"""The demonstration: MAST against VICReg on generated images whose factors are known."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from mast.commands.analyze import analyze
from mast.commands.evaluate import evaluate
from mast.commands.pretrain import pretrain
from mast.commands.report import report
from mast.config import PretrainConfig
from mast.core.display import console
from mast.core.launch import Device
from mast.core.run import RunFolder
from mast.measure.named_sets import NamedSets
from mast.recipes import configure

# A narrow ResNet-10: two pretrainings and eighteen probes in under five minutes on two cores.
ENCODER = {
    "name": "timm:resnet18",
    "options": {
        "layers": [1, 1, 1, 1],
        "channels": [16, 32, 64, 256],
        "stem_type": "deep",
        "stem_width": 16,
    },
    "stem_stride": 2,
}
SIZE = 32
ANALYSED = 192  # images of the analyses
ANALYSES = ("curves", "masks", "subspaces", "invariance")  # what takes seconds


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration measured.

    Attributes:
        run: The run folder of MAST.
        page: What was learned, on one page.
        accuracy: Linear accuracy in percent by task and encoder.
    """

    run: RunFolder
    page: Path
    accuracy: dict[str, dict[str, float]]

    def table(self) -> Table:
        """One row a task, one column an encoder."""
        table = Table(title="linear accuracy (%) on the factors of the generated images")
        table.add_column("task")
        columns = list(next(iter(self.accuracy.values())))
        for column in columns:
            table.add_column(column, justify="right")
        for task, row in self.accuracy.items():
            table.add_row(task, *(f"{row[column]:.1f}" for column in columns))
        means = (
            sum(row[column] for row in self.accuracy.values()) / len(self.accuracy)
            for column in columns
        )
        table.add_row("mean", *(f"{mean:.1f}" for mean in means), style="bold")
        return table


def demo(
    out: str | Path = "runs/demo",
    epochs: int = 6,
    images: int = 8192,
    seed: int = 0,
    device: Device = "auto",
) -> DemoResult:
    """Pretrain MAST-5 and VICReg on generated images and probe what each kept.

    Every image has six factors (shape, colour, orientation, position, texture, sharpness), each
    a task of its own; an invariance that helps one of them destroys another.

    Args:
        out: Folder of the two runs.
        epochs: Passes over the images, for each of the two.
        images: Number of training images.
        seed: Seed of both runs.
        device: auto, cpu or cuda.

    Returns:
        The accuracies, the run folder of MAST and its page.
    """
    configs: dict[str, PretrainConfig] = {
        column: configure(
            recipe,
            out=str(Path(out) / name),
            data=f"factors@train:{images}",
            size=SIZE,
            encoder=ENCODER,
            epochs=epochs,
            seed=seed,
            device=device,
            score_every=epochs,
        )
        for column, recipe, name in (
            ("MAST-5", "mast5_small", "mast5"),
            ("VICReg-5", "vicreg5_small", "vicreg5"),
        )
    }
    runs = {column: pretrain(config) for column, config in configs.items()}
    # The first half of the training images is enough for the probes.
    sets = NamedSets(train=f"factors@train:{images // 2}", val="factors@val", test="factors@test")
    accuracy: dict[str, dict[str, float]] = {}
    measured = {**runs, "untrained": runs["MAST-5"]}
    for column, run in measured.items():
        console.print(f"linear probes of {column}", highlight=False)
        untrained = column == "untrained"
        (result,) = evaluate(run.path, sets, "linear", device=device, untrained=untrained)
        for target, scores in result.targets.items():
            accuracy.setdefault(target, {})[column] = scores.values["top1"]
    run, beside = runs["MAST-5"], str(runs["VICReg-5"].path)
    analyze(
        run.path, "factors@test", ANALYSES, beside=[beside], images=ANALYSED, measure=False,
        device=device, seed=seed,
    )  # fmt: skip
    page = report(run.path, beside=[beside])
    return DemoResult(run, page, accuracy)
