"""List and read shards, local or in any store of fsspec."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from mast.core.errors import UserError, reason_of
from mast.core.files import named
from mast.core.threads import Threads, wait

ENDING = ".tar"
READERS = 32  # concurrent requests for the state of shards
WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds before each retry
PATIENCE_S = 30.0  # seconds to wait for an answer
BLOCK = 2**22  # bytes per request to a store
BUFFER = 2**18  # bytes per read of a local file
# Names of modification time or version in stores.
_STATES = ("size", "mtime", "ETag", "etag", "LastModified", "Last-Modified", "last_modified",
           "updated", "blob_id")  # fmt: skip
_log = logging.getLogger("mast")
Answer = TypeVar("Answer")


def is_local(url: str) -> bool:
    """Whether a URL is a local path."""
    return "://" not in url or url.startswith(("file://", "local://"))


def find_shards(pattern: str) -> dict[str, tuple[int, str]]:
    """Size and state of each shard by URL, sorted by name."""
    local = is_local(pattern)
    place = str(named(pattern)) if local else pattern
    literal = local and os.path.exists(place)
    with naming(f"shards:{pattern} cannot be found"):
        from braceexpand import braceexpand
        from fsspec.core import has_magic, url_to_fs

        places = [place] if literal else list(braceexpand(place))
        system, _ = url_to_fs(places[0])

        def look(each: str) -> dict[str, Any]:
            path = each if literal else str(system._strip_protocol(each))
            if has_magic(path) and not literal:
                return dict(system.glob(path, detail=True))
            of = system.info(path)
            if of["type"] == "directory" or path.endswith("/"):  # https:// has no listing
                return {inner["name"]: inner for inner in system.ls(path, detail=True)}
            return {path: of}

        details = _asked(pattern, look, places)
        unsized = [path for path, of in details.items() if of.get("size") is None]
        details |= _asked(
            pattern,
            lambda path: {path: system.info(path)},
            [path for path in unsized if path.endswith(ENDING)],
        )
        found = {
            path if local else str(system.unstrip_protocol(path)): (
                int(of["size"]),
                " ".join(str(of[key]) for key in _STATES if key in of),
            )
            for path, of in sorted(details.items())
            if path.endswith(ENDING) and of["type"] == "file"
        }
    if not found:
        raise UserError(
            f"shards:{pattern}: expected files ending in {ENDING}, a folder of "
            "them, or a pattern such as train-*.tar or train-{000..099}.tar, got no shard"
        )
    return found


def _asked(
    pattern: str, look: Callable[[str], Mapping[str, Any]], places: Iterable[str]
) -> dict[str, Any]:
    """Metadata of several files, requested concurrently."""
    with Threads(READERS) as pool:
        answers = pool.map(lambda place: answered(pattern, partial(look, place)), places)
        return {path: of for answer in answers for path, of in answer.items()}


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Prefix errors of the block with a description of the failed action."""
    try:
        yield
    except UserError:
        raise
    except ImportError as error:
        raise UserError(f"{what}: {error}; try pip install 'mast-ssl[shards]'") from error
    except Exception as error:  # each store and reader raises its own types
        raise UserError(f"{what}: {reason_of(error)}") from error


def read_beside(shard: str, name: str) -> bytes | None:
    """Content of a file next to a shard; None if missing."""
    from fsspec.core import url_to_fs

    url = shard[: shard.rfind("/") + 1] + name
    with naming(f"{url} cannot be read"):
        system, path = url_to_fs(url)
        try:
            return bytes(answered(url, partial(system.cat_file, path)))
        except FileNotFoundError:
            return None


def open_shard(url: str, size: int) -> BinaryIO:
    """A file of this many bytes, local or in a store."""
    if is_local(url):
        return open(url, "rb", BUFFER)
    from fsspec.spec import AbstractBufferedFile

    class StoreFile(AbstractBufferedFile):
        def _fetch_range(self, start: int, end: int) -> bytes:
            return read_range(url, start, end - start)

    return cast(BinaryIO, StoreFile(None, url, block_size=BLOCK, size=size))


def read_range(url: str, at: int, size: int) -> bytes:
    """Read bytes of a file; retries a failing store with growing pauses."""
    if size <= 0:
        return b""
    if is_local(url):
        with open(url, "rb") as file:
            file.seek(at)
            content = file.read(size)
        if len(content) < size:
            raise UserError(f"{url} ends before byte {at + size:,}: it changed")
        return content
    for tries, pause in enumerate((*WAITS_S, None), 1):
        try:
            content = answered(url, lambda: _fetched(url, at, size))
            if len(content) == size:
                return content
            raise EOFError(f"{len(content):,} bytes came at byte {at:,}, expected {size:,}")
        except UserError:
            raise
        except Exception as error:  # each kind of store raises its own
            if pause is None:
                said = f"{url} cannot be read, tried {tries} times: {reason_of(error)}"
                raise UserError(said) from error
            _log.warning("%s: %s; retrying in %g s", url, reason_of(error), pause)
            wait(threading.Event(), pause)
    raise AssertionError


def _fetched(url: str, at: int, size: int) -> bytes:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    if system.async_impl:
        content = bytes(system.cat_file(path, start=at, end=at + size))
        return content if len(content) <= size else content[at : at + size]  # knows no ranges
    with system.open(path, "rb", block_size=BLOCK, cache_type="none") as file:  # no more than asked
        file.seek(at)
        return bytes(file.read(size))


def answered(url: str, ask: Callable[[], Answer]) -> Answer:
    """The answer of a store, or TimeoutError, as some clients wait for minutes."""
    if is_local(url):
        return ask()
    done, answer = threading.Event(), Future[Answer]()

    def keep() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # raised where it was asked
            answer.set_exception(error)
        done.set()

    threading.Thread(target=keep, name="mast-store", daemon=True).start()
    if not wait(done, PATIENCE_S):
        raise TimeoutError(f"no answer in {PATIENCE_S:g} s")
    return answer.result()
