"""``assay serve`` as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def served(*arguments: str, ends_by: signal.Signals = signal.SIGINT, **environment: str) -> Iterator[str]:
    """``assay serve ARGUMENTS`` on a free port; its address. It must end with 0."""
    base = [sys.executable, "-m", "assay", "serve", *arguments, "--port", "0", "--json"]
    with subprocess.Popen(base, stdout=subprocess.PIPE, text=True, env=os.environ | environment) as child:
        assert child.stdout is not None
        told = ""
        while not told.endswith("}\n"):
            line = child.stdout.readline()
            # A server that died says nothing for ever: whoever waits for its last line would wait as long.
            assert line, f"assay serve ended with {child.wait()} after saying {told!r}"
            told += line
        try:
            yield json.loads(told)["url"]
            child.send_signal(ends_by)
            assert child.wait(20) == 0
        finally:
            child.kill()  # leaving waits for it
