"""The site: built strictly, asks nobody for anything, and its search works in a browser."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import doc_blocks

# What makes a browser ask for something: not links, which wait for a click.
_ASKS = re.compile(
    r"""(?:<(?:script|img|iframe|source|audio|video)[^>]*\ssrc|<link[^>]*\shref)=["']?(\w+:)?//([^"'\s>]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=doc_blocks.ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_every_page_of_ours_is_in_it(site: Path) -> None:
    for page in (doc_blocks.ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(doc_blocks.ROOT / "docs")).with_suffix(".html").is_file(), page


def test_nothing_is_asked_of_another_machine(site: Path) -> None:
    found = []
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css"):
            text = path.read_text("utf-8")
            found += [f"{path.relative_to(site)}: {asked[:200]}" for asked in _ASKS.findall(text)]
    assert found == []


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.mark.parametrize("way", ["server", "file"])
def test_search_finds_an_attack(way: str, site: Path, address: str, browser: Any) -> None:
    start = f"{address}/index.html" if way == "server" else (site / "index.html").as_uri()
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(start)
    assert "Assay" in page.title()
    box = page.get_by_role("textbox", name="Search").first
    box.click()
    box.press_sequentially("hop_skip_jump")  # it searches as one types
    page.wait_for_selector(".md-search-result__link[href*='attacks.html']", timeout=20_000)
    page.goto(start.replace("index.html", "reference/attacks.html"))
    assert page.locator("#pgd").count() == 1
    page.close()
    assert asked
    assert [url for url in asked if not url.startswith((address, "file:", "data:", "blob:"))] == []
