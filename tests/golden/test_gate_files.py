"""The three files of a gate, byte for byte, and read back: ASSAY_GOLDEN=write writes them anew, to be looked at."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.core.environment import version_of
from assay.engines.gate_result import Gate
from assay.outputs.gate.junit import junit
from assay.outputs.gate.markdown import markdown
from assay.outputs.gate.sarif import sarif
from gate_files import WHEN, gate

MET = {"rows": gate().rows[3:], "attacks": {}, "warnings": (), "failures": (), "failed": 0, "baseline": None}
GATES = {"not-met": gate(), "met": gate(**MET, run=None, requirement="", subject="runs/ci")}
FILES: dict[str, Callable[[Gate], bytes]] = {
    "junit.xml": lambda made: junit(made, when=WHEN),
    "sarif.json": lambda made: sarif(made).replace(f'"{version_of("assay")}"'.encode(), b'"VERSION"'),
    "summary.md": lambda made: markdown(made).encode(),
}


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("file", FILES)
def test_a_gate_is_written_as_it_was(name: str, file: str) -> None:
    golden = Path(__file__).parent / f"gate-{name}.{file}"
    made = FILES[file](GATES[name])
    if os.environ.get("ASSAY_GOLDEN") == "write":
        golden.write_bytes(made)
    assert made.decode() == golden.read_text()
