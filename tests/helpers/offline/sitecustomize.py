"""No test reaches the network: Python imports this at the start of every process a test starts (see conftest).

What asks for another machine is refused and written down, so that a test fails even where the refusal is handled.
"""

import os
import sys
from typing import Any

LOG = "ASSAY_TEST_NETWORK"  # the file of what was asked for
_HERE = ("", "localhost", "::1", "0.0.0.0", "::")


def _is_here(host: object) -> bool:
    return host is None or (isinstance(host, str) and (host in _HERE or host.startswith("127.")))


def _asked_for(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The other machine that an event is about, if there is one."""
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        return str(address) if isinstance(address, tuple) and not _is_here(address[0]) else None
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
        return None if _is_here(host) else str(host)
    return None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    other = _asked_for(event, arguments)
    if other is not None and LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:  # noqa: PTH123  nothing is imported here
            log.write(f"{event} {other}\n")
        raise ConnectionRefusedError(f"tests stay on this machine; asked for {other}")


sys.addaudithook(_watch)
