"""Events as TensorBoard shows them."""

from pathlib import Path
from typing import Any

from assay.core.extras import needed
from assay.core.files import whole_text
from assay.core.registry import register
from assay.outputs.track import Event, Take
from assay.outputs.track.home import Home
from assay.outputs.track.numbers import clean_name, flat

FLUSH_SECONDS = 5


@register("sink")
def tensorboard(home: Home, *, place: str = "") -> Take:
    """TensorBoard's event files, in the run folder or in a folder of the run's name below PLACE."""
    needed("tensorboard", "track", "--log tensorboard")
    if not place:
        home.check("tensorboard", "DIR")
    writer: Any = None

    def take(event: Event) -> None:
        nonlocal writer
        kind = event["event"]
        if kind == "open":
            from torch.utils.tensorboard import SummaryWriter

            folder = Path(place) / (home.name or "assay") if place else home.place("tensorboard")
            writer = SummaryWriter(str(folder), flush_secs=FLUSH_SECONDS)
        elif kind == "begin":
            writer.add_text("assay/config", _as_code(event["config"]), 0, event["time"])
        elif kind == "image":
            tag = clean_name(f"failures/{event['true']} to {event['predicted']}")
            writer.add_image(tag, event["picture"], event["number"], event["time"], dataformats="HWC")
        else:
            for name, value in event["numbers"].items():
                writer.add_scalar(clean_name(name), value, event["step"], event["time"])
        if kind == "end":
            writer.add_text("assay/end", _as_code({"status": event["status"], "verdict": event["verdict"]}), 0)
            writer.close()

    return take


def _as_code(facts: dict[str, Any]) -> str:
    """Facts as a block of code: the page shows text as Markdown, and what users name things is none."""
    lines = (f"{name} = {value}" for name, value in flat(facts))
    return "\n".join("    " + " ".join(whole_text(line).split()) for line in lines)
