"""Programs as targets: an array in, an array out, and every way a program can fail."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.core.cases import Cases, InputSpec
from assay.core.errors import NoAnswer, UsageError
from assay.subjects.asked import Asked
from assay.subjects.bench import Data
from assay.subjects.sources import command
from assay.subjects.sources.load import load_target

SPEC = InputSpec((3,), (0.0, 1.0), ("a", "b", "c"))
READ = "import sys, numpy as np; x = np.load(sys.stdin.buffer); "
WRITE = "np.save(sys.stdout.buffer, {})"
GOOD = READ + WRITE.format("x / x.sum(1, keepdims=True)")


@pytest.fixture
def data() -> Data:
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)) + 0.1
    return Data("made", Cases.of(x, torch.arange(5) % 3), SPEC)


def program(code: str, name: str = "predict.py") -> str:
    Path(name).write_text(code)
    return f"cmd:{sys.executable} {name}"


def load(text: str, data: Data | None, **more: Any) -> Asked:
    target = load_target(text, data=data, **more)
    assert isinstance(target, Asked)
    return target


def test_a_program_answers(data: Data) -> None:
    target = load(program(GOOD), data)
    x = data.cases.x
    assert torch.allclose(target(x).softmax(1), x / x.sum(1, keepdim=True))
    assert target.gives == {"label", "prob"}


def test_labels_and_names(data: Data) -> None:
    code = READ + WRITE.format("np.array(['a', 'b', 'c'])[x.argmax(1)]")
    target = load(program(code), data)
    assert target.gives == {"label"}
    assert torch.equal(target(data.cases.x).argmax(1), data.cases.x.argmax(1))


def test_it_is_no_shell(data: Data) -> None:
    text = program(GOOD)
    with pytest.raises(UsageError, match="cannot be read as a command line"):
        load(text + " 'open", data)
    target = load(f"{text} $(touch made) ; touch made '| touch made'", data)  # mere arguments
    target(data.cases.x)
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("import sys; sys.exit('no\\x1b[31m weights')", NoAnswer, r"exit code 1: no \[31m weights"),
        ("import os; os.kill(os.getpid(), 9)", NoAnswer, "ended with signal 9"),
        ("pass", UsageError, "wrote nothing; the answer goes to stdout as numpy.save writes it"),
        ("print('0.1 0.9')", UsageError, "no array as numpy.save writes it: '0.1 0.9'"),
        (READ + "np.savez(sys.stdout.buffer, x)", UsageError, "an archive of arrays"),
        (READ + "np.save(sys.stdout.buffer, np.array([{}] * len(x)))", UsageError, "no array as numpy.save"),
        (READ + WRITE.format("x[:0]"), UsageError, "must answer 1 inputs"),
    ],
)
def test_failures_are_told(data: Data, code: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(program(code), data)


def test_a_pickle_is_never_opened(data: Data) -> None:
    code = (
        READ
        + "import pickle\nclass Bad:\n    def __reduce__(self): return (open, ('canary', 'w'))\n"
        + "sys.stdout.buffer.write(pickle.dumps(Bad()))"
    )
    with pytest.raises(UsageError, match=r"no array as numpy.save writes it"):
        load(program(code), data)
    assert not Path("canary").exists()


def test_a_program_that_hangs_is_ended_with_what_it_started(data: Data) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open('pid', 'w').write(str(child.pid)); time.sleep(60)"
    )
    with pytest.raises(NoAnswer, match=r"did not answer within 1.5 s"):
        load(program(code), data, ask="timeout=1.5")
    child = int(Path("pid").read_text())
    for _ in range(100):
        if not _runs(child):
            break
        time.sleep(0.02)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_one_that_never_stops_writing_is_ended(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_MOST", 1 << 16)
    with pytest.raises(UsageError, match="an answer is one small array"):
        load(program("while True: print('x' * 1000)"), data)


def test_retries_when_asked_for(data: Data) -> None:
    once = "import os\nif not os.path.exists('seen'):\n    open('seen', 'w')\n    raise SystemExit(3)\n"
    target = load(program(once + GOOD), data, ask="retries=1")
    assert (target.queries.first, target.queries.retries) == (1, 1)


def test_the_fingerprint_follows_the_files_that_are_named(data: Data) -> None:
    text = program(GOOD)
    first = load(text, data).fingerprint()
    assert first == load(text, data).fingerprint()
    program(GOOD + "  # changed")
    assert first != load(text, data).fingerprint()


def test_texts_that_name_no_program(data: Data) -> None:
    for text, message in (
        ("cmd:", "names no program"),
        ("cmd:no-such-program-here x", "no program 'no-such-program-here' is found"),
    ):
        with pytest.raises(UsageError, match=message):
            load(text, data)
    with pytest.raises(UsageError, match="does not say what inputs it takes"):
        load("cmd:cat", None)


def test_one_that_never_stops_complaining_is_ended(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_MOST", 1 << 16)
    with pytest.raises(UsageError, match="writes more than"):
        load(program("import sys\nwhile True: print('x' * 1000, file=sys.stderr)"), data)


def test_of_a_long_complaint_the_last_line_is_told(data: Data) -> None:
    code = "import sys\nprint('x' * 100_000, file=sys.stderr)\nsys.exit('y' * 100 + 'the end')"
    with pytest.raises(NoAnswer, match=r"exit code 1: y{100}the end") as caught:
        load(program(code), data)
    assert "x" * 50 not in str(caught.value)
