"""CUDA graphs: work on a GPU that is recorded once and launched as a whole."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch

T = TypeVar("T")
WARM_UP = 3  # times that work is done before it is recorded: libraries choose kernels at first


class GraphError(Exception):
    """Work that cannot be recorded, or whose replay computes something else."""


class Graph(NamedTuple, Generic[T]):
    """What was recorded.

    Attributes:
        result: Of the work, in memory that each replay writes again; nothing is in it before.
        replay: Does the work again, on the tensors that it was recorded with.
        pool: The memory of what is in between, which graphs that follow each other may share.
    """

    result: T
    replay: Callable[[], None]
    pool: Any


def record(work: Callable[[], T], pool: Any = None) -> Graph[T]:
    """Record work instead of doing it.

    Args:
        work: Launches kernels, and neither waits for them nor copies from or to pageable memory.
        pool: Of an earlier graph that is always replayed before this one.
    """
    graph = torch.cuda.CUDAGraph()
    failure: Exception | None = None
    # What fails leaves the stream on which it was recorded the current one, and an error that says
    # no more than that something failed.
    with torch.cuda.stream(torch.cuda.current_stream()):
        try:
            # other threads, which load the next batches, may go on
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                try:
                    result = work()
                except Exception as error:
                    failure = error
                    raise
        except Exception as error:
            reason = failure or error
            raise GraphError(f"{type(reason).__name__}: {reason}") from reason
    return Graph(result, graph.replay, graph.pool())


def warm_up(work: Callable[[], object], device: torch.device) -> None:
    """Do work as it will be recorded, on a stream of its own."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream(device).wait_stream(stream)
