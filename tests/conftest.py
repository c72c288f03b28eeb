"""Shared by all tests: one thread, a cache of their own, tiny images and a tiny configuration."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from multiprocessing import set_forkserver_preload
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

os.environ["PYTHONUNBUFFERED"] = "1"  # what a killed process had printed is read
if not torch.cuda.is_available():
    # read when Triton is imported: its kernels run on the CPU
    os.environ["TRITON_INTERPRET"] = "1"

from tiny import configure, write_images
from torch.multiprocessing import start_processes

import mast
from mast.analyses import ANALYSES
from mast.augment import OPERATORS, PRESETS, Pipeline, Preset
from mast.augment.compiled.rows import FOLDER
from mast.core.canvases import Canvases
from mast.core.launch import cores
from mast.core.run import RunFolder
from mast.methods import METHODS
from mast.recipes import RECIPES
from paper import register

pytest_plugins = ("evaluation_fixtures",)

WORKERS = 2  # of the whole suite; one named part of it runs in this process, unless -n says more


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` of the configuration stands for."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return WORKERS if whole and cores() >= WORKERS else 0


@pytest.fixture(autouse=True, scope="session")
def answering_signals() -> None:
    """Also in the background, where a shell has signals ignored: tests send some."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def _compiled_once(worker_id: str) -> None:
    """In a fresh clone each worker compiles a share of the kernels, and finds others on disk."""
    if worker_id != "master":
        at, step = int(worker_id[2:]) % len(OPERATORS), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        pipeline = Pipeline(Preset(tuple(OPERATORS)[at::step]), 16, compiled=True)
        records = pipeline.draw(64, torch.Generator().manual_seed(0))
        pipeline.views(Canvases.of(torch.zeros(64, 32, 32, 3, dtype=torch.uint8)), records)


@pytest.fixture(scope="session")
def in_two_processes() -> Callable[..., None]:
    """A function that calls `work(rank, *arguments)` in two processes at once, and waits for them.

    They are forked from one that has imported what takes seconds, and has done nothing else; their
    environment is that of the beginning, so folders are arguments.
    """
    if sys.platform == "win32":
        return lambda work, *arguments: start_processes(work, arguments, 2)
    set_forkserver_preload(["mast.runs.pretraining", "mast.commands.evaluate", "torchmetrics"])
    return lambda work, *arguments: start_processes(work, arguments, 2, start_method="forkserver")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_progress() -> Iterator[None]:
    """However slow the machine is, what the tests read of stderr is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mast.core.display.LINE_S", float("inf"))
        yield


os.environ["NUMBA_CACHE_DIR"] = FOLDER  # processes of tests have caches of their own


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays: to look through it again and again for garbage takes seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For the fixtures of a whole session too, which would else fill the user's."""
    with pytest.MonkeyPatch.context() as context:
        context.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(autouse=True)
def _own_registries() -> Iterator[None]:
    """What the paper has is forgotten after the test whose command added it."""
    with patch.dict(ANALYSES), patch.dict(METHODS), patch.dict(RECIPES), patch.dict(PRESETS):
        yield


@pytest.fixture
def in_time() -> Iterator[None]:
    """Fails what would wait for ever, such as for somebody who writes into a pipe."""

    def fail(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def baselines() -> None:
    """The methods, recipes and views of the paper beside those of `mast`, for one test."""
    register()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 48 training, 24 validation and 24 test images of three classes."""
    root = tmp_path_factory.mktemp("photos")
    for part, count in (("train", 48), ("val", 24), ("test", 24)):
        write_images(root / part, count)
    return root


@pytest.fixture
def tiny(photos: Path, tmp_path: Path) -> Callable[..., mast.PretrainConfig]:
    """A configuration that trains in about a second."""
    return partial(configure, photos, tmp_path / "run")


TWO = ["horizontal_flip", "color_jitter"]
BOTH = ["color", "orientation"]
BLOCKS = {"exempt": BOTH, "predicted": BOTH, "exempt_share": 0.2}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("mast5_small", {}),
    "theirs": ("vicreg5_small", {}),
    "blocks": ("mast_c5_small", {"objective": BLOCKS}),
    "plain": ("mast_c5_small", {}),
    "of two": ("mast_c5_small", {"operators": TWO}),
    "uncertain of two": ("mast5_small", {"operators": TWO}),
}


@pytest.fixture(scope="session")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunFolder]:
    """A function that copies a finished run of one epoch, of `RUNS`, into a folder to write into.

    What is not asked for is not trained, and what several tests ask for is trained once.
    """
    root = tmp_path_factory.mktemp("trained")

    @cache
    def train(name: str) -> Path:
        recipe, changes = RUNS[name]
        return mast.pretrain(configure(photos, root / name, recipe, epochs=1, **changes)).path

    return lambda name, folder: RunFolder(shutil.copytree(train(name), folder))


@pytest.fixture
def ours(trained: Callable[..., RunFolder], tmp_path: Path) -> RunFolder:
    """A finished run of MAST with uncertainty, to write into."""
    return trained("ours", tmp_path / "ours")


@pytest.fixture
def theirs(trained: Callable[..., RunFolder], tmp_path: Path) -> RunFolder:
    """A finished run of VICReg on the same images, to write into."""
    return trained("theirs", tmp_path / "theirs")
