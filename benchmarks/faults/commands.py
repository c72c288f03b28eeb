"""The commands that are attacked, and what each answers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TINY = (
    "photos/train --recipe mast_c5_small --encoder timm:test_resnet --size 16 "
    "data.canvas=20 objective.projector.hidden=32 objective.projector.dim=32 "
    "objective.exempt_share=0.1 --batch_size 8 --epochs 3 score_every=3 log_every=1 "
    "--device cpu --seed 0"
)
BRIEF = ("finetune.changes.epochs=2",)
QUICK = ("linear.resamples=50", "linear.penalties=0.01,1.0")
# Times and versions, which may differ where nothing else does, and the digest of all.
VOLATILE = {"seconds", "images_per_second", "provenance", "sha256"}


@dataclass(frozen=True)
class Command:
    """One that is run in a copy of the world.

    Attributes:
        words: What follows `mast`, as a shell splits it.
        answers: Patterns of what it writes, which is compared.
        prints: Whether what it prints is an answer too.
        reads: Patterns of the files that it reads, which are damaged.
    """

    words: tuple[str, ...]
    answers: tuple[str, ...] = ()
    prints: bool = False
    reads: tuple[str, ...] = ()

    def forget(self, folder: Path) -> None:
        """Remove what it answered before, but for what it reads too."""
        read = {path for pattern in self.reads for path in folder.glob(pattern)}
        for pattern in self.answers:
            for path in folder.glob(pattern):
                if path not in read:
                    path.unlink()

    def answer(self, folder: Path, printed: str) -> dict[str, Any]:
        """What it answered, by file, without what may differ."""
        found = {
            str(path.relative_to(folder)): _content(path)
            for pattern in self.answers
            for path in sorted(folder.glob(pattern))
        }
        return found | ({"printed": printed} if self.prints else {})


RUN = ("run/*.safetensors", "run/config.yaml")
KEPT = (
    "cache/mast/*.u8",
    "cache/mast/*.safetensors",
    "cache/mast/*.sqlite",
)
SCORES = ("run/evaluations/*.json", "run/evaluations/each/*.safetensors")
PHOTOS = ("photos/*/*/*.png",)
TRAINED = ("encoder.safetensors", "embedding.safetensors", "metrics.jsonl")
STUDIED = ("--data", "photos", "--epochs", "1", "--protocols", "knn")
STUDY = ("studies/*/encoder.safetensors", "studies/*/evaluations/*.json")

COMMANDS: dict[str, Command] = {
    "pretrain": Command(
        ("pretrain", *TINY.split(), "--out", "new"), tuple(f"new/{name}" for name in TRAINED),
        reads=("cache/mast/*.u8", "cache/mast/*.json", *PHOTOS),
    ),
    "continue": Command(
        ("pretrain", *TINY.split(), "--out", "begun"), tuple(f"begun/{name}" for name in TRAINED),
        reads=("begun/checkpoints/*.pt", "begun/config.yaml", "begun/metrics.jsonl",
               "begun/provenance.json", "cache/mast/*.u8", "cache/mast/*.json"),
    ),
    "evaluate": Command(
        ("evaluate", "run", "--data", "photos", "--protocols", "knn", "linear",
         *QUICK),
        ("run/evaluations/*.json", "run/evaluations/each/*.safetensors"),
        reads=(*RUN, *KEPT, *PHOTOS),
    ),
    "probe": Command(
        ("evaluate", "run", "--data", "photos", "--protocols", "finetune", *BRIEF),
        ("run/evaluations/*.json", "run/evaluations/each/*.safetensors"), reads=(*RUN, *KEPT),
    ),
    "compare": Command(("compare", "run", "other"), prints=True, reads=SCORES),
    "analyze": Command(
        ("analyze", "run", "--data", "photos/test", "--images", "8",
         "--analyses", "masks"),
        ("run/analysis/*.npz",),
        reads=(*RUN, *KEPT, "run/metrics.jsonl", "run/provenance.json"),
    ),
    "outliers": Command(
        ("outliers", "photos/test", "--encoder", "run", "--out", "table.csv"), ("table.csv",),
        reads=(*RUN, *KEPT),
    ),
    "adapt": Command(
        ("adapt", "photos/train", "--encoder", "run", "--images", "10",
         "--operators", "rotate", "color_jitter", "--out", "adapted"),
        ("adapted/*.safetensors",), reads=(*RUN, *KEPT, *PHOTOS),
    ),
    "in a space": Command(
        ("duplicates", "photos/train", "--encoder", "adapted", "--ignore", "color",
         "--level", "similar", "--out", "copies.csv"),
        ("copies.csv",), reads=("adapted/*.safetensors", *KEPT, *PHOTOS),
    ),
    "export a space": Command(
        ("export", "adapted", "--format", "pt2", "--match", "color", "--out", "exported"),
        ("exported/*.pt2",), reads=("adapted/*.safetensors",),
    ),
    "neighbours": Command(
        ("neighbours", "photos/test", "--encoder", "run", "--query", "0",
         "photos/train/dusk/0.png", "--k", "3", "--out", "near.html"),
        ("near.html",), reads=(*RUN, *KEPT, *PHOTOS),
    ),
    "duplicates": Command(
        ("duplicates", "photos/train", "--encoder", "run", "--level", "similar",
         "--out", "copies.csv"),
        ("copies.csv",), reads=(*RUN, *KEPT),
    ),
    "embed": Command(
        ("embed", "photos/test", "--encoder", "run", "--ignore", "color", "--out", "space.npz"),
        ("space.npz",), reads=(*RUN, *KEPT, *PHOTOS),
    ),
    "fit": Command(
        ("fit", "photos", "--encoder", "run", "penalties=0.01,1.0",
         "--out", "fitted.safetensors"),
        ("fitted.safetensors",), reads=(*RUN, *KEPT, *PHOTOS),
    ),
    "predict": Command(
        ("predict", "photos/test", "--classifier", "fitted.safetensors", "--out", "told.csv"),
        ("told.csv",), reads=("fitted.safetensors", *KEPT),
    ),
    "export": Command(
        ("export", "run", "--format", "pt2", "--out", "exported"),
        ("exported/*.pt2",), reads=RUN,
    ),
    "views": Command(
        ("show", "views", "photos/test", "--images", "2", "--out", "views.png"),
        ("views.png",), reads=PHOTOS,
    ),
    "report": Command(
        ("report", "run"), ("run/report.html",),
        reads=(*SCORES, "run/config.yaml", "run/metrics.jsonl", "run/provenance.json",
               "run/analysis/*"),
    ),
    # What it answers changes: it has to notice.
    "cache": Command(("show", "cache", "--verify"), prints=True, reads=("cache/mast/*.u8",)),
    "resume": Command(
        ("pretrain", "--config", "begun/config.yaml", "--out", "begun"),
        tuple(f"begun/{name}" for name in TRAINED),
    ),
    "streamed": Command(
        ("pretrain", *TINY.replace("photos/train", "shards:shards").split(), "--out", "new"),
        tuple(f"new/{name}" for name in TRAINED),
    ),
    "shards": Command(
        ("embed", "shards:shards", "--encoder", "run", "--out", "space.npz"), ("space.npz",)
    ),
    "objects": Command(
        ("duplicates", "coco:coco@train", "--encoder", "run", "--out", "copies.csv"),
        ("copies.csv",),
    ),
    "study": Command(
        ("study", "epochs", "run", *STUDIED), tuple(f"run/{name}" for name in STUDY),
        reads=("run/config.yaml", "run/studies/*/config.yaml", "run/studies/*/checkpoints/*",
               "run/studies/*/evaluations/*.json", *KEPT),
    ),
    "new study": Command(
        ("study", "epochs", "other", *STUDIED), tuple(f"other/{name}" for name in STUDY)
    ),
}  # fmt: skip


def _content(path: Path) -> Any:
    try:
        return _read(path)
    except (OSError, ValueError):  # damaged, and left so
        return None


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return _steady(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [_steady(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: (arrays[name].shape, arrays[name].tobytes()) for name in arrays.files}
    return path.read_bytes()


def _steady(value: Any) -> Any:
    """A value without times and versions."""
    if isinstance(value, dict):
        return {key: _steady(item) for key, item in value.items() if key not in VOLATILE}
    return [_steady(item) for item in value] if isinstance(value, list) else value
