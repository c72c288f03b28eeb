"""Locks that the kernel frees when their process ends, however it ends."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

# What a file system says that has no locks: NFS without its daemon, Lustre mounted without flock.
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EPERM)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock during the block.

    Args:
        path: A file, which is created; what it says does not matter.
        wait: Whether to wait for another process that holds it. Such a lock saves work and guards
            nothing, so that where it cannot be created the block runs without it.

    Yields:
        Whether it is held. Without locks on the file system it is not, and no file is put in its
        place, which a killed process would leave behind.

    Raises:
        filelock.Timeout: Another process holds it, and `wait` is false.
        OSError: It cannot be created, and `wait` is false.
    """
    lock = FileLock(path, timeout=-1 if wait else 0, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if not wait and error.errno not in NO_LOCKS:
            raise
    try:
        yield lock.is_locked
    finally:
        if lock.is_locked:
            with suppress(OSError):
                lock.release()
