"""A page on this machine alone: nobody else can reach it, and no other page can read it."""

import logging
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, NamedTuple, final

from mast.core.errors import UserError

HERE = "127.0.0.1"
SECONDS = 10  # that a client may take to ask

_log = logging.getLogger("mast")


class Answer(NamedTuple):
    """What is answered at a path: its media type, and what makes the text."""

    kind: str
    make: Callable[[], str]


@final
class LocalServer(ThreadingMixIn, TCPServer):
    """Serves some texts on 127.0.0.1, a thread for each request.

    A request must name this machine as its host, so that a page of the web whose name was made to
    point here (DNS rebinding) reads nothing.

    Args:
        answers: By path; there are no others.
        port: 0 for any that is free.

    Raises:
        UserError: The port cannot be had.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, answers: Mapping[str, Answer], port: int = 0) -> None:
        if not 0 <= port < 65536:
            raise UserError(f"expected a port of 0 to 65535, got {port}")
        try:
            super().__init__((HERE, port), _Handler)
        except OSError as error:
            raise UserError(
                f"cannot listen on port {port}: {error.strerror or error}. Name another, or 0 for "
                "any that is free"
            ) from error
        self.answers = answers
        self.port: int = self.server_address[1]
        self.hosts = {f"{name}:{self.port}" for name in (HERE, "localhost")}

    @property
    def address(self) -> str:
        """What a browser is given."""
        return f"http://{HERE}:{self.port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A request that failed is a line, unless its client is what went away."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            _log.warning("a request failed: %s: %s", type(error).__name__, error)


@final
class _Handler(BaseHTTPRequestHandler):
    """Answers GET of the paths that there are."""

    server: LocalServer
    timeout = SECONDS

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"open {self.server.address}\n")
            return
        answer = self.server.answers.get(self.path)
        if answer is None:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"see {self.server.address}\n")
            return
        try:
            text = answer.make()
        except (UserError, OSError) as error:  # the files are gone, for example
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")
            return
        self._answer(HTTPStatus.OK, answer.kind, text)

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def version_string(self) -> str:
        return "mast"

    def log_message(self, *_: Any) -> None:
        """Nothing: the terminal is the user's."""
