"""A page in a browser, and what happened since it was opened."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ARTIFACTS = Path(__file__).parents[1] / "browser" / "artifacts"


@dataclass
class Opened:
    """A page in the browser, and what happened since it was opened."""

    tab: Any
    path: Path
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def cards(self) -> list[str]:
        """The ids of the cards that are shown, in order."""
        found: list[str] = self.tab.eval_on_selector_all("#cards > .card", "all => all.map(card => card.dataset.id)")
        return found

    @property
    def count(self) -> str:
        return str(self.tab.inner_text("#count"))

    def active(self, what: str) -> Any:
        return self.tab.evaluate(f"document.activeElement.{what}")

    def picture(self, name: str) -> None:
        """Keep what the page looks like, for people."""
        folder = Path(os.environ.get("ASSAY_ARTIFACTS") or ARTIFACTS)
        folder.mkdir(parents=True, exist_ok=True)
        self.tab.wait_for_timeout(500)  # pictures come when they are near
        self.tab.screenshot(path=str(folder / f"{name}.png"))
