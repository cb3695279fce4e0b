"""A headless Chromium for the pages that people open, and everything it complains of."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.outputs.report.build import report
from made_runs import made_run
from opened import Opened

CHROMIUM = Path(os.environ.get("ASSAY_CHROMIUM", "/usr/bin/chromium"))
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WATCH = """addEventListener("securitypolicyviolation", event => console.error("policy: " + event.violatedDirective));
window.alert = text => console.error("alert: " + text);"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        assert os.environ.get("ASSAY_NEEDS_BROWSER") != "1", f"no browser at {CHROMIUM}: apt-get install chromium"
        pytest.skip(f"no browser at {CHROMIUM}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a file as a user does; at the end nothing may have been asked of the network, refused, or gone wrong."""
    contexts, pages = [], []

    def work(path: Path, fragment: str = "", width: int = 1280, height: int = 900, **settings: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        context.add_init_script(WATCH)
        opened = Opened(context.new_page(), path)
        pages.append(opened)
        opened.tab.on("request", lambda request: opened.asked.append(request.url))
        opened.tab.on("console", lambda message: opened.errors.append(f"{message.type}: {message.text}"))
        opened.tab.on("pageerror", lambda error: opened.errors.append(str(error)))
        opened.tab.on("dialog", lambda dialog: opened.errors.append(f"dialog: {dialog.message}"))
        opened.tab.goto(path.resolve().as_uri() + fragment)
        return opened

    yield work
    for page in pages:
        page.tab.wait_for_timeout(50)  # what was said last arrives
        assert page.errors == []
        beside = page.path.resolve().parent.as_uri() + "/"
        assert not [url for url in page.asked if not url.startswith((beside, "data:image/png;base64,"))]
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a run with failures and its report, once for all tests that ask for the same."""
    pages: dict[str, Path] = {}

    def work(name: str, n: int, *given: Any, single_file: bool = False, **settings: Any) -> Path:
        key = f"{name}{single_file}"
        if key not in pages:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ASSAY_RUNS", str(tmp_path_factory.mktemp(name)))
                pages[key] = report(made_run(name, n, *given, **settings), single_file=single_file)
        return pages[key]

    return work
