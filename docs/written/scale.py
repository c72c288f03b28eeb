"""What runs of many GPUs take, computed from measured rates and stated assumptions."""

import json
from dataclasses import dataclass
from typing import Any

from mast.analyses import Grid
from mast.data import DataConfig
from mast.recipes import configure
from paper.tables.reproduction import saved_bytes
from written.result_files import ROOT, link_table

RESULTS = ROOT / "benchmarks" / "results"
VIEWS_A_SECOND = 2800  # forward and backward of a ResNet-50 at 224 pixels, a GPU
SHARE = 0.9  # of the encoder's speed that a step reaches
HOUR = 2.5  # dollars a GPU
WRITE = 1e9  # bytes per second that a checkpoint is written with
MINUTES = 30  # between checkpoints
MEMORY = 3.35e12  # bytes per second of an H100's memory
IN_SHARD = 10_000
ASSUMED = (
    ("training a ResNet-50 at 224 pixels in bf16, per GPU", f"{VIEWS_A_SECOND:,} views per second"),
    ("speed of a step, relative to the encoder's", f"{SHARE:.0%}"),
    ("memory bandwidth of an H100", f"{MEMORY / 1e12:.2f} TB/s"),
    ("writing a checkpoint", f"{WRITE / 1e9:.0f} GB/s, every {MINUTES} minutes"),
    ("images per shard", f"{IN_SHARD:,}"),
    ("GPU hour", f"${HOUR:.2f}"),
)


@dataclass(frozen=True)
class Scenario:
    """A run.

    Args:
        name: What it is.
        images: Of the set.
        epochs: Passes over it.
        gpus: H100s.
        batch: Images of a GPU in a step.
    """

    name: str
    images: int
    epochs: int
    gpus: int
    batch: int


SCENARIOS = (
    Scenario("ImageNet, 1000 epochs, 8 H100", 1_281_167, 1000, 8, 256),
    Scenario("a billion images once, 64 H100", 10**9, 1, 64, 64),
)


def scale() -> str:
    """Both tables, with where their numbers are from."""
    shards = json.loads((RESULTS / "shards-cpu.json").read_text())
    views = json.loads((RESULTS / "fused.json").read_text())
    columns = [_column(scenario, shards, views) for scenario in SCENARIOS]
    rows = tuple((name, *(column[name] for column in columns)) for name in columns[0])
    taken = Grid(("", *(scenario.name for scenario in SCENARIOS)), rows)
    assumed = Grid(("assumed", ""), ASSUMED)
    warm = shards["cases"]["warm"]
    speeds = Grid(
        ("canvases of 256 pixels", "images per second and core", "cold"),
        tuple(
            (name, f"{1 / of['median']:,.0f}", _speed(shards["cases"]["cold"].get(name)))
            for name, of in warm.items()
        ),
    )
    links = (link_table("scale", taken, "estimates"), link_table("assumed", assumed, "assumptions"),
             link_table("shards", speeds, "reading speed by format"))  # fmt: skip
    return f"Tables: {', '.join(links)}."


def _speed(of: dict[str, float] | None) -> str:
    return "" if of is None else f"{1 / of['median']:,.0f}"


def _column(scenario: Scenario, shards: Any, views: Any) -> dict[str, str]:
    config = configure(
        "mast_c15", device="cpu", batch_size=scenario.batch * scenario.gpus,
        data=DataConfig("shards:…"),
    )  # fmt: skip
    each = SHARE * VIEWS_A_SECOND / 2
    together = each * scenario.gpus
    seconds = scenario.images * scenario.epochs / together
    image = shards["written"]["jpg"]["bytes per image"]
    core = 1 / shards["cases"]["warm"]["shards of JPEGs"]["median"]
    saved = sum(saved_bytes(config))
    moved = views["views"]["mast15"]["Triton"]["GB"] * 1e9 / views["images"]
    step_s = scenario.batch / each
    waiting = config.data.shuffle * image
    return {
        "images per second": f"{together:,.0f}",
        "hours": f"{seconds / 3600:,.1f}",
        "steps": f"{scenario.images * scenario.epochs / config.batch_size:,.0f}",
        "step, ms": f"{1e3 * step_s:.0f}",
        "… views, from the bytes moved": (f"{1e3 * moved * scenario.batch / MEMORY:.1f}"),
        "the set, in shards of JPEGs": (
            f"{scenario.images * image / 1e12:.2f} TB in {-(-scenario.images // IN_SHARD):,}"
        ),
        "read from storage": f"{together * image / 1e6:,.0f} MB/s",
        "decoding cores per GPU": f"{each / core:.1f}",
        "shuffle buffer per process": f"{waiting / 1e6:,.0f} MB",
        "checkpoint": f"{saved / 1e9:.2f} GB",
        "… pauses": f"{saved / WRITE:.1f} s, {saved / WRITE / (60 * MINUTES):.2%} of the time",
        "cost": f"${seconds / 3600 * scenario.gpus * HOUR:,.0f}",
    }


def many() -> str:
    """A million files and a hundred million samples: seconds of each part."""
    titles = {
        "nothing": "Python and imports alone",
        "scan": "listed, sorted and fingerprinted",
        "cache": "decoded once, canvases of 32 pixels",
        "again": "opened again, including listing",
    }
    opened = {
        "nothing": "Python and imports alone",
        "index": "shards by index.json, and the order of the first process of 64",
        "manifest": "the manifest of their canvases",
        "source": "shards, and the index of their samples",
    }
    result = json.loads((RESULTS / "many.json").read_text())
    rows = [(f"{result['files']:,} files", titles[name], of, "MB")
            for name, of in result["parts"].items()]  # fmt: skip
    rows += [(f"{result['samples']:,} images in shards", opened[name], of, "own MB")
             for name, of in result["kept"].items()]  # fmt: skip
    cells = tuple((what, title, f"{of['seconds']:.1f}", f"{of[key]:,.0f}")
                  for what, title, of, key in rows)  # fmt: skip
    return f"{link_table('many', Grid(('of', 'part', 's', 'MB'), cells), 'Seconds and memory')}."


def nodes() -> str:
    """How two hosts end when one of their processes, or one of them, is killed."""
    result = json.loads((RESULTS / "nodes.json").read_text())
    seconds = _by_victim(result["kills"])
    rows = tuple(
        (victim, f"{len(some)}, {min(some):.1f} to {max(some):.1f} s")
        for victim, some in sorted(seconds.items())
    )
    assert result["same"]
    head = ("killed", "kills, time until all exited")
    return (
        f"After {len(result['kills'])} kills in {result['steps']} steps, the encoder is byte for "
        f"byte that of an undisturbed run ({link_table('nodes', Grid(head, rows))})."
    )


def _by_victim(kills: list[dict[str, Any]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for kill in kills:
        found.setdefault(kill["victim"], []).append(kill["seconds"])
    return found
