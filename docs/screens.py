"""Draw README's picture of the page: three screens of the demonstration.

    python docs/screens.py runs/demo/photos.html

Needs pip install -e '.[browser]' and a Chromium, which MAST_CHROMIUM names or the path has.
"""

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SCREENS = ("", "&match=color", "&match=color&view=Map")
WIDTH, HEIGHT, GAP = 900, 760, 12
chromium = os.environ.get("MAST_CHROMIUM") or shutil.which("chromium")
picture = Image.new("RGB", (len(SCREENS) * (WIDTH + GAP) - GAP, HEIGHT), "white")
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    address = Path(sys.argv[1]).resolve().as_uri()
    page.goto(address)
    start = page.evaluate("DATA.start")
    for at, screen in enumerate(SCREENS):
        page.goto("about:blank")
        page.goto(f"{address}#{start}{screen}")
        page.wait_for_selector("#view .tile")
        page.wait_for_timeout(1500)
        shot = Image.open(io.BytesIO(page.screenshot()))
        picture.paste(shot.convert("RGB"), (at * (WIDTH + GAP), 0))
file = Path(__file__).parent / "images" / "page.jpg"
picture.resize((picture.width * 2 // 3, picture.height * 2 // 3), Image.Resampling.LANCZOS).save(
    file, quality=88, optimize=True
)
