"""How long a report takes to write, to open and to page: 5 000 failures of 3×32×32 made up, in headless Chromium.

    python benchmarks/report.py [--failures 5000] [--side 32] [--channels 3] [--turns 20]

Opening is from the start of the navigation until the first cards are painted with their pictures; a page is turned when
its cards are painted. Exit 1 where opening takes longer than 2 s.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.outputs.report.build import report
from made_runs import made_run

BAR = 2.0
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip
# Two frames after the work: the first is laid out in one and painted in the next.
PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
TURN = f"""async () => {{
  const began = performance.now();
  document.getElementById('next').click();
  return await ({PAINTED})() - began;
}}"""
LOADED = """() => Promise.all([...document.querySelectorAll('#sheets image')].map(image => new Promise(done => {
  const probe = new Image(); probe.onload = probe.onerror = done; probe.src = image.href.baseVal; })))"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=5000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="assay-report-") as folder:
        os.environ["ASSAY_RUNS"] = folder
        shape = (given.channels, given.side, given.side)
        run = made_run("made", given.failures, shape, shrunk=min(given.failures, 500))
        told = {"failures": given.failures, "shape": list(shape), **measured(run, given.turns)}
    print(json.dumps(told))
    return int(told["open_seconds"] > BAR)


def measured(run: Path, turns: int) -> dict[str, Any]:
    """Seconds and bytes of the report of a run."""
    began = time.perf_counter()
    page = report(run)
    written = time.perf_counter() - began
    began = time.perf_counter()
    alone = report(run, single_file=True)
    packed = time.perf_counter() - began
    return {
        "write_seconds": round(written, 2),
        "page_bytes": page.stat().st_size,
        "pictures_bytes": sum(file.stat().st_size for file in (page.parent / "images").iterdir()),
        "pictures_files": sum(1 for _ in (page.parent / "images").iterdir()),
        **opened(page, turns),
        "single_write_seconds": round(packed, 2),
        "single_bytes": alone.stat().st_size,
        "single_open_seconds": opened(alone, 1)["open_seconds"],
    }


def opened(page: Path, turns: int) -> dict[str, Any]:
    """Seconds until the first cards are painted, and milliseconds a page takes to turn, in a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto("about:blank")
        began = time.perf_counter()
        tab.goto(page.resolve().as_uri())
        tab.locator("#gallery").scroll_into_view_if_needed()
        tab.evaluate(LOADED)
        tab.evaluate(PAINTED)
        seconds = time.perf_counter() - began
        flips = [float(tab.evaluate(TURN)) for _ in range(turns) if tab.locator("#next").is_enabled()]
        tab.select_option("#sort", "size")
        sorted_ = [float(tab.evaluate(TURN)) for _ in range(turns) if tab.locator("#next").is_enabled()]
        browser.close()
    return {
        "open_seconds": round(seconds, 3),
        "turn_ms": round(statistics.median(flips), 1) if flips else None,
        "turn_ms_worst": round(max(flips), 1) if flips else None,
        "turn_ms_sorted": round(statistics.median(sorted_), 1) if sorted_ else None,
    }


if __name__ == "__main__":
    sys.exit(main())
