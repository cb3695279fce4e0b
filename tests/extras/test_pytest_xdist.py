"""The pytest plugin under pytest-xdist: what workers measure is told by the one that started them."""

import importlib.metadata

import pytest

from gates import prepare

pytest_plugins = ["pytester"]


def test_numbers_of_all_workers_are_told(pytester: pytest.Pytester) -> None:
    prepare(pytester.path)
    pytester.makepyfile(
        test_model="""
import pytest

@pytest.mark.parametrize("bound", [0.1, 0.2, 0.3, 0.95])
def test_it(robustness, bound):
    robustness("gate.py:net@new.safetensors", "gate.npz").require(f"robust>={bound}", suite="fgsm", eps=0.05)
"""
    )
    installed = any(entry.name == "assay" for entry in importlib.metadata.entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "assay.pytest_plugin"]
    result = pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-n", "2", "--assay-save", "kept")
    result.assert_outcomes(passed=3, failed=1)
    told = [line for line in result.outlines if line.startswith(("met ", "not met "))]
    assert len(told) == 4
    result.stdout.fnmatch_lines(["*replay one: assay replay *kept-gw*", "*robustness (assay)*"])
