"""A frame that is painted over itself, also after the terminal was made narrower, lower or larger in between."""

import math
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

Lines = Callable[[], list[Text]]


class Painting(Live):
    """Lines on a terminal that are gone when it ends; with ``each``, a thread paints them anew so often (seconds).

    rich goes back over as many rows as it painted. Lines that no longer fit in the width have gone on in the next row
    since, so the rows are counted anew, by the width of now. What has scrolled away by then nobody can take back.
    """

    def __init__(self, console: Console, lines: Lines, *, each: float | None = None, redirect_stdout: bool) -> None:
        self.laid: list[int] = []  # columns of each line that lies there
        super().__init__(
            get_renderable=lambda: _Frame(lines(), self),
            console=console,
            transient=True,
            auto_refresh=each is not None,
            refresh_per_second=1 / (each or 1.0),
            redirect_stdout=redirect_stdout,
            vertical_overflow="crop",
        )

    def start(self, refresh: bool = False) -> None:
        super().start(refresh)
        # Never hidden: a process that is killed would leave the user without one.
        self.console.show_cursor(True)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """What rich is about to write, from where our lines begin now."""
        _, *rest = super().process_renderables(renderables)
        return [self._back(), *rest]

    def _back(self) -> Control:
        rows = sum(max(1, math.ceil(columns / self.console.width)) for columns in self.laid)
        up = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * (min(rows, self.console.height) - 1)
        return Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *up)


class _Frame:
    """Lines that tell their painting how wide they are when they are painted, and never before."""

    def __init__(self, lines: list[Text], painting: Painting) -> None:
        self.lines, self.painting = lines, painting

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self.lines[: options.size.height]
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"  # the terminal may be narrower than when they were made
        self.painting.laid = [min(line.cell_len, options.max_width) for line in lines]
        yield from lines
