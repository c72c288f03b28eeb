"""Watch a run while it trains."""

from pathlib import Path

from mast.core.checkpoint import write_text
from mast.core.display import say
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.files import out_file
from mast.core.run import RunFolder
from mast.core.stopping import Interrupted
from mast.page import LivePage, LocalServer, is_page


@entry(draws=True)
def watch(run: str | Path, port: int = 0, once: str | Path | None = None) -> Path | None:
    """Show a run while it trains, on a page of this machine that renews itself.

    It reads the run's files alone, and nothing is loaded from elsewhere. The page is served on
    127.0.0.1, to browsers of this machine; from another one, tunnel the port by SSH.

    Args:
        run: A run folder, from the first step on; the run may be complete.
        port: Of this machine; 0: any that is free.
        once: An HTML file to write in place of serving: the page as it is now.

    Returns:
        The file; without one this serves until a signal ends it.

    Raises:
        UserError: No such run, a port that cannot be had, or a port and a file.
        Interrupted: By Ctrl-C or another signal.
    """
    if once is not None and port:
        raise UserError("a page that is written once needs no port: leave out one of both")
    file = None if once is None else out_file(once, {".html": is_page}, "once")
    page = LivePage(RunFolder(run))
    if file is not None:
        write_text(file, page.html(live=False))
        return file
    try:
        with LocalServer(page.answers(), port) as server:
            say(f"watching {run} on {server.address} until Ctrl-C")
            server.serve_forever()
    except Interrupted as stopped:
        raise Interrupted(
            stopped.code - 128, "the page is no longer served; the run is not touched"
        ) from None
    return None
