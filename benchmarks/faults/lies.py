"""Files that are well-formed, with the right digests, and mean something else."""

import json
import math
import random
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from faults.case import Case
from faults.commands import COMMANDS
from faults.files import verdict
from faults.process import run
from faults.strangers import MARKUP, acts
from faults.world import CANARY, Runs, World
from mast.core.tensors import DIGEST, OURS, digest, read_metadata, read_tensors, write_tensors

Tell = Callable[[Path, random.Random], str]  # rewrites a file; what it says now
Place = tuple[str | int, ...]  # of a value in nested fields
Places = Mapping[Any, Sequence[Any]]  # what is put there

INF, NAN = math.inf, math.nan
NUMBERS: tuple[Any, ...] = (0, -1, 7.5, "16", None, [16], {}, 2**40, 1e30, INF, NAN)
OPTIONS: tuple[Any, ...] = (
    {"checkpoint_path": "evil.pth"}, {"pretrained": True}, {"weights": "evil.pth"},
    {"pretrained": True, "pretrained_cfg": {"file": "evil.pth"}},
    {"pretrained": True, "pretrained_cfg_overlay": {"file": "evil.pth"}},
    {"pretrained_cfg": "evil.pth"}, {"norm_layer": "open('canary', 'w')"}, {"block": "eval"},
    {"act_layer": "os.system"}, {"features_only": True}, {"in_chans": 4}, {"num_classes": 2**40},
    {"channels": [2**40] * 4}, {"channels": []}, {"scriptable": True}, {"": 1},
    {"x": {"y": [None]}}, [], "x", 5, None,
)  # fmt: skip
NAMES: tuple[Any, ...] = (
    "timm:", "timm:x", "../../evil", "local-dir:.", "timm:local-dir:.", "evil.pth", "", 5, None,
    ["timm:test_resnet"], {}, "timm:test_resnet\n", "torchvision:resnet18",
)  # fmt: skip
ENCODER: Places = {
    ("encoder", "options"): OPTIONS, ("encoder", "name"): NAMES, ("encoder", "stem"): (5, "x", []),
    ("encoder", "stem_stride"): (0, -1, "1", 2**40), ("size",): NUMBERS,
    ("encoder",): (None, [], "x", {}),
}  # fmt: skip
CLASSIFIER: Places = {
    ("classifier", "temperature"): (0, -1, "1", None, [1.0], INF, NAN, 1e-400, -1e300),
    ("classifier", "classes"): ([], ["dusk"], [1, 2], None, "ab", {}, [["a"], ["b"]], ["a", "a"]),
    ("classifier", "size"): NUMBERS, ("classifier",): (None, [], "x", {}),
    ("normalization", "std"): ([0.0] * 3, [-1.0] * 3, [1.0], "xyz", None, [NAN] * 3, ["1"] * 3),
    ("normalization", "mean"): ([0.5], [INF] * 3, "xyz", None, [[0.5] * 3]),
    ("encoder", "options"): OPTIONS, ("encoder", "name"): NAMES,
}  # fmt: skip
CHECKPOINT: Places = {
    ("step",): (10**6, 10**30, -1, 2.5, "5", None, True), ("seconds",): ("x", None, NAN, -1e30),
    ("kept",): (None, [], "x"), ("kept", "best"): ("x", None, []), ("kept", "order"): ("x", [9, 9]),
    ("rng",): (None, "x", torch.zeros(3), torch.zeros(0, dtype=torch.uint8)),
    ("rng_cuda",): (None, 5, ["x"]), ("module",): ({}, None, []),
    ("optimizer",): ({}, None, {"state": {}, "param_groups": []}),
    ("optimizer", "param_groups", 0, "lr"): (NAN, "x", None),
    ("optimizer", "param_groups", 0, "betas"): ("x", (2.0, -1.0), None),
    ("optimizer", "param_groups", 0, "peak_lr"): (INF, "x", 7.0),
}  # fmt: skip
CONFIG: Places = {  # of a run that goes on: with any of these it is another
    ("optimizer", "lr"): (0.05, "x", NAN, None), ("objective", "masked_weight"): (11.0, INF, "x"),
    ("seed",): (1, -1, "x"), ("epochs",): (2, 0, 1e30), ("batch_size",): (4, 0, 2**40),
    ("size",): (32, 0), ("encoder", "options"): OPTIONS, ("encoder", "name"): NAMES,
    ("data", "spec"): ("photos/test", "", 5), ("views",): ("vicreg", "x", []),
    ("method",): ("vicreg", None), ("encoder", "std"): ([0.0] * 3, "x", [1.0]),
}  # fmt: skip
COCO: Places = {
    ("images", 0, "file_name"): ("../../bin/gs", "/etc/passwd", "", "a\0b", None, "x" * 300),
    ("images", 0, "width"): (0, -1, INF, NAN, "24", None),
    ("images", 0, "id"): (1, None, [], {}, NAN),
    ("annotations", 0, "bbox"): ([NAN] * 4, [1, 2, 3], [0, 0, -5, -5], "x", None, [INF] * 4),
    ("annotations", 0, "iscrowd"): ("x", [], 7), ("annotations", 0, "category_id"): (9, None, []),
    ("categories", 0, "name"): (None, [], "moss"), ("images",): ([], {}, None, [None]),
    ("categories", 0, "id"): (2, "1", []), ("annotations", 0): (None, [], "x"),
}  # fmt: skip
INDEX: Places = {
    ("shardlist", 0, "nsamples"): (0, 5, 7, -1, 2**60, 1e30, "6", None, NAN),
    ("shardlist", 0, "url"): ("../bin/gs", "/etc/passwd", "000001.tar", "", None, "x://y/0.tar"),
    ("shardlist",): ([], {}, None, [None]), ("classes",): (["a"], "ab", 5, [1, 2]),
    ("__kind__",): ("x", None),
}  # fmt: skip
# What a field is replaced by, where it is of another kind.
KINDS: tuple[Any, ...] = (None, True, 5, "x", [], {}, [[1]], {"a": {"b": 1}}, INF, 10**400)
SAYS_SO = re.compile(r"\w{3}")  # what a line has to say to name a place or a value
FREE = {"settings", "provenance", DIGEST}  # of a result: whatever is in it
RAW = ("Infinity", "-Infinity", "NaN", "1e400", "-1e400", '"x"', "null", "[]", "{}", "9" * 400)
TENSORS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "gone": lambda tensor: None,
    "float64": lambda tensor: tensor.double(),
    "int8": lambda tensor: tensor.to(torch.int8),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "of one number": lambda tensor: tensor.flatten()[:1],
    "of another axis": lambda tensor: tensor[None],
    "of another shape": lambda tensor: tensor.flatten()[None],
    "twice as long": lambda tensor: torch.stack([tensor, tensor]).flatten(0, min(1, tensor.ndim)),
    "empty": lambda tensor: tensor.new_empty(0),
    "not a number": lambda tensor: torch.full_like(tensor, NAN, dtype=torch.float32),
    "infinite": lambda tensor: torch.full_like(tensor, INF, dtype=torch.float32),
}


@dataclass(frozen=True)
class Lie:
    """What is rewritten.

    Attributes:
        files: Pattern of the files, of which one is drawn.
        readers: Names in `COMMANDS`.
        tell: Rewrites it.
    """

    files: str
    readers: tuple[str, ...]
    tell: Tell


def attack(world: World, draw: random.Random) -> Case:
    """Have a file say something else; a command answers as if it did not, or names the file."""
    if draw.random() < 0.1:
        return _foreign(world, draw)
    folder = world.fresh()
    name = draw.choice(sorted(LIES))
    lie = LIES[name]
    reader = draw.choice(lie.readers)
    file = draw.choice(sorted(folder.glob(lie.files)))
    told = lie.tell(file, draw)
    said = f"{file.relative_to(folder)}: {told[:200]}"
    place, _, value = told.partition(" is ")
    words = (file.stem, f"{file.parent.name}/", place.rpartition(".")[2], value)
    COMMANDS[reader].forget(folder)
    outcome = run(COMMANDS[reader].words, folder)
    found = verdict(world, reader, file, outcome, tuple(filter(SAYS_SO.search, words)))
    if acts(folder):
        found = "code"
    return Case.of("lies", COMMANDS[reader].words, said, found, outcome)


def _foreign(world: World, draw: random.Random) -> Case:
    """A checkpoint of another project that holds no encoder: it is named."""
    folder = world.fresh()
    file, what = folder / "foreign.pth", draw.choice(sorted(FOREIGN))
    torch.save(FOREIGN[what](folder), file)
    words = ("embed", "photos/test", "--encoder", file.name, "--out", "space.npz")
    outcome = run(words, folder)
    found = outcome.fault or ("refused" if outcome.code and file.name in outcome.said else "wrong")
    return Case.of("lies", words, f"{file.name}: {what}", found, outcome)


def _weights(tensor: Tensor) -> dict[str, Tensor]:
    return {"conv1.weight": tensor, "bn1.weight": torch.ones(64), "fc.weight": torch.ones(2, 2)}


FOREIGN: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda folder: {},
    "no weights": lambda folder: {"state_dict": {}},
    "a list": lambda folder: [torch.ones(3)],
    "code": lambda folder: Runs(folder / CANARY),
    "code beside weights": lambda folder: _weights(torch.ones(1)) | {"x": Runs(folder / CANARY)},
    "sparse": lambda folder: _weights(torch.zeros(64, 3, 7, 7).to_sparse()),
    "without numbers": lambda folder: _weights(torch.empty(64, 3, 7, 7, device="meta")),
    "one number, repeated": lambda folder: _weights(torch.zeros(1).expand(2**40)),
    "a number": lambda folder: _weights(torch.tensor(1.0)),
    "complex": lambda folder: _weights(torch.zeros(64, 3, 7, 7, dtype=torch.complex64)),
    "names that are none": lambda folder: {1: torch.ones(3), None: torch.ones(3)},
    "deep": lambda folder: _deep(200),
}


def _deep(levels: int) -> Any:
    value: Any = torch.ones(1)
    for _ in range(levels):
        value = {"state_dict": value}
    return value


# ------------------------------------------------------------------------------------------ tells
def put(fields: Any, place: Place, value: Any) -> None:
    """Set a value in nested fields."""
    for key in place[:-1]:
        fields = fields[key]
    fields[place[-1]] = value


def _drawn(places: Places, fields: Any, draw: random.Random) -> str:
    place = draw.choice(list(places))
    value = draw.choice(places[place])
    put(fields, place, value)
    return f"{'.'.join(map(str, place))} is {value!r}"


def rewrite(file: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], Any]) -> Any:
    """Change tensors, and what is said of them, in a file that has the right digest again."""
    tensors, told = read_tensors(file)
    ours = {key: value for key, value in read_metadata(told).items() if key != DIGEST}
    said = change(tensors, ours)
    write_tensors(file, tensors, ours, {key: told[key] for key in told if key != OURS})
    return said


def header(places: Places) -> Tell:
    """A field of the header of tensors."""
    return lambda file, draw: rewrite(file, lambda tensors, ours: _drawn(places, ours, draw))


def tensor(file: Path, draw: random.Random) -> str:
    """One tensor is another."""
    said: str = rewrite(file, lambda tensors, ours: _change(tensors, draw))
    return said


def _change(tensors: dict[str, Tensor], draw: random.Random) -> str:
    name, how = draw.choice(sorted(tensors)), draw.choice(sorted(TENSORS))
    changed = TENSORS[how](tensors.pop(name))
    if changed is not None:
        tensors[name] = changed
    return f"{name} is {how}"


def fields(places: Places | None = None) -> Tell:
    """A field of a JSON file, with the digest that it has then."""

    def tell(file: Path, draw: random.Random) -> str:
        document = json.loads(file.read_text())
        signed_before = isinstance(document, dict) and document.pop(DIGEST, None) is not None
        if places is not None and draw.random() < 0.7:
            said = _drawn(places, document, draw)
        else:
            holder, key = draw.choice([*nodes(document)] or [(document, "rank")])
            old = holder.get(key) if isinstance(holder, dict) else holder[key]
            holder[key] = draw.choice([new for new in KINDS if type(new) is not type(old)])
            said = f"{key} is {str(holder[key])[:50]}"
        if signed_before:
            document[DIGEST] = digest({}, document)
        file.write_text(json.dumps(document))
        return said

    return tell


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """All fields and entries below a value, with what holds them."""
    for key in range(len(value)) if isinstance(value, list) else [*value]:
        if key in FREE:
            continue
        yield value, key
        if isinstance(value[key], dict | list):
            yield from nodes(value[key])


def logged(file: Path, draw: random.Random) -> str:
    """A number of a line of the log."""
    lines = file.read_text().splitlines()
    at = draw.randrange(len(lines))
    record = json.loads(lines[at])
    key, raw = draw.choice(list(record)), draw.choice(RAW)
    lines[at] = json.dumps(record | {key: "@raw"}).replace('"@raw"', raw)
    file.write_text("\n".join(lines) + "\n")
    return f"line {at}, {key} is {raw[:20]}"


def arrays(file: Path, draw: random.Random) -> str:
    """An array of an analysis."""
    with np.load(file, allow_pickle=False) as archive:
        whole: dict[str, Any] = dict(archive)
    name = draw.choice(sorted(whole))
    array = whole.pop(name)
    others = {
        "gone": None,
        "code": np.array([Runs(_canary(file)), None], object),
        "text": np.full(array.shape, "x"),
        "empty": np.zeros(0),
        "flat": array.reshape(-1)[:1],
        "nan": np.full(array.shape, NAN),
    }
    how = draw.choice(sorted(others))
    if others[how] is not None:
        whole[name] = others[how]
    np.savez(file, allow_pickle=True, **whole)
    return f"{name} is {how}"


def _canary(file: Path) -> Path:
    return next(above for above in file.parents if (above / "bin" / "gs").is_file()) / CANARY


def checkpoint(file: Path, draw: random.Random) -> str:
    """What a training goes on from."""
    state = torch.load(file, weights_only=True)
    if draw.random() < 0.3:
        said = _change(state["module"], draw)
    else:
        said = _drawn(CHECKPOINT, state, draw)
    torch.save(state, file)
    return said


def configuration(file: Path, draw: random.Random) -> str:
    """What a run is continued with."""
    config = yaml.safe_load(file.read_text())
    said = _drawn(CONFIG, config, draw)
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return said


def tar(file: Path, draw: random.Random) -> str:
    """A shard that ends between two members, or has another one behind its end."""
    others = sorted(set(file.parent.glob("*.tar")) - {file})
    if draw.random() < 0.6:
        with tarfile.open(file) as archive:
            member = draw.choice(archive.getmembers()[1:])
        with file.open("rb+") as cut:
            cut.truncate(member.offset)
        said = f"it ends before {member.name}"
    else:
        file.write_bytes(file.read_bytes() + draw.choice(others).read_bytes())
        said = "another one follows its end"
    if draw.random() < 0.5:  # and the index beside it says so
        index = file.parent / "index.json"
        document = json.loads(index.read_text())
        for shard in document["shardlist"]:
            shard["filesize"] = (file.parent / shard["url"]).stat().st_size
        index.write_text(json.dumps(document))
    return said


def picture(file: Path, draw: random.Random) -> str:
    """A program in place of an image, or a few bytes that say that they are billions of pixels."""
    if draw.random() < 0.7:
        size = "%%BoundingBox: 0 0 24 24\n%%HiResBoundingBox: 0 0 24 24\n%%EndComments\n"
        file.write_text(f"%!PS-Adobe-3.0 EPSF-3.0\n{size}(canary) (w) file closefile showpage\n")
        return "PostScript"
    side = draw.choice((40_000, 2**31 - 1))
    shape = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (shape, b"IDAT" + zlib.compress(bytes(99)), b"IEND")
    chunks = (struct.pack(">I", len(p) - 4) + p + struct.pack(">I", zlib.crc32(p)) for p in parts)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return f"a PNG of {side} x {side} pixels"


def drawing(file: Path, draw: random.Random) -> str:
    """A figure with what a page may not hold."""
    said = draw.choice(MARKUP)
    figure = re.sub(r"(<svg[^>]*>)", lambda match: match[1] + said, file.read_text(), count=1)
    file.write_text(figure)
    return said


USERS = ("embed", "evaluate", "outliers", "export", "neighbours", "analyze")
LIES: dict[str, Lie] = {
    "header of an encoder": Lie("run/encoder.safetensors", (*USERS, "fit"), header(ENCODER)),
    "tensor of an encoder": Lie("run/encoder.safetensors", (*USERS, "fit"), tensor),
    "tensor of an embedding": Lie("run/embedding.safetensors", ("embed", "analyze"), tensor),
    "header of a classifier": Lie("fitted.safetensors", ("predict",), header(CLASSIFIER)),
    "tensor of a classifier": Lie("fitted.safetensors", ("predict",), tensor),
    "result": Lie("run/evaluations/*.json", ("compare", "report"), fields()),
    "what each image contributed": Lie(
        "run/evaluations/each/*.safetensors", ("compare", "report"), tensor
    ),
    "log": Lie("run/metrics.jsonl", ("report", "analyze"), logged),
    "log of a begun run": Lie("begun/metrics.jsonl", ("continue",), logged),
    "provenance": Lie("run/provenance.json", ("report", "analyze"), fields()),
    "missing analyses": Lie("run/analysis/missing.json", ("report",), fields()),
    "analysis": Lie("run/analysis/*.npz", ("report",), arrays),
    "figure": Lie("run/analysis/*.svg", ("report",), drawing),
    "checkpoint": Lie("begun/checkpoints/last.pt", ("continue",), checkpoint),
    "configuration": Lie("begun/config.yaml", ("resume", "continue"), configuration),
    "index of shards": Lie("shards/index.json", ("shards", "streamed"), fields(INDEX)),
    "shard": Lie("shards/*.tar", ("shards", "streamed"), tar),
    "annotations": Lie("coco/annotations/*.json", ("objects",), fields(COCO)),
    "image": Lie("photos/test/*/*.png", ("embed", "views"), picture),
    "image to train on": Lie("photos/train/*/*.png", ("pretrain", "fit"), picture),
}
