"""Trackers: one stream of events about a run, and the sinks that take it elsewhere.

A sink is a function ``(home, *, place="", …)`` of kind ``sink``. It checks what can be checked before the work (is its
package there, is there a place to write to) and returns a function that takes one event after another, in a thread of
its own. The events, each a dict with ``event`` and ``time`` (see docs/tracking.md): ``open`` (nothing but local
preparation belongs here), ``begin``, ``numbers``, ``image``, ``end``.
"""

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
Take = Callable[[Event], None]
