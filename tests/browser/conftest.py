"""A browser for all tests of pages.

Needs `pip install -e '.[browser]'` and a Chromium, which MAST_CHROMIUM names or the path has.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("MAST_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="needs pip install -e '.[browser]'")
    if CHROMIUM is None:
        pytest.skip("needs a Chromium: apt-get install chromium, or set MAST_CHROMIUM")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Callable[..., AbstractContextManager[Page]]:
    """Opens a page; whatever is done there, nothing is loaded and nothing fails."""

    @contextmanager
    def opened(file: Path, at: str = "", width: int = 1280, **options: Any) -> Iterator[Page]:
        size = {"width": width, "height": 900}
        page = browser.new_context(viewport=size, **options).new_page()
        requests, complaints = list[str](), list[str]()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(file.as_uri() + at)
        yield page
        others = [url for url in requests if not url.startswith(("data:", "blob:"))]
        assert others == [file.as_uri()]
        assert complaints == []
        page.context.close()

    return opened
