"""Targets that are programs: ``cmd:program arguments`` reads an array from stdin and writes the answer to stdout.

Both are ``.npy`` files as NumPy writes them. One process is started for each batch, without a shell.
"""

import io
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from assay.core import trust
from assay.core.errors import UsageError
from assay.core.files import canonical_json, sha256
from assay.subjects.bench import Data
from assay.subjects.sources.answering import Answering, Inputs
from assay.subjects.sources.asking import Asking
from assay.subjects.sources.patience import BadAnswer, TryAgain, printable

_BATCH, _TIMEOUT = 256, 60.0
_MOST = 64 << 20  # bytes of one answer
_LOOK = 0.01  # seconds between looks at what a program has written


class Program:
    """A program and its arguments; a call starts it once."""

    def __init__(self, words: list[str], timeout: float) -> None:
        self.words, self.timeout = words, timeout

    def __call__(self, rows: Inputs) -> Any:
        sent = io.BytesIO()
        np.save(sent, rows)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as said:
            given.write(sent.getvalue())
            given.seek(0)
            code = self._run(given, told, said)
            said.seek(0, os.SEEK_END)
            said.seek(max(0, said.tell() - 4000))
            words = said.read().decode("utf-8", "replace").strip()
            if code:
                last = f": {printable(words.splitlines()[-1])}" if words else ""
                raise TryAgain(f"ended with {_ending(code)}{last}")
            told.seek(0)
            return _answer(told)

    def _run(self, given: Any, told: Any, said: Any) -> int:
        """Its exit code, if it ends in time and says no more than an answer can be."""
        try:
            # In a session of its own: an interrupt at the keyboard is ours to handle, and where we end it, what it
            # started ends too. One that ends by itself may leave something behind for the next question.
            process = subprocess.Popen(self.words, stdin=given, stdout=told, stderr=said, start_new_session=True)
        except OSError as error:
            raise UsageError(f"cannot start {self.words[0]}: {error.strerror}") from error
        deadline = time.monotonic() + self.timeout
        try:
            while True:
                try:
                    return process.wait(_LOOK)
                except subprocess.TimeoutExpired:
                    pass
                if os.fstat(told.fileno()).st_size + os.fstat(said.fileno()).st_size > _MOST:
                    raise UsageError(f"{self.words[0]} writes more than {_MOST >> 20} MB; an answer is one small array")
                if time.monotonic() > deadline:
                    raise TryAgain(f"did not answer within {self.timeout:g} s")
        finally:
            _end(process)


def command_target(text: str, data: Data | None, how: Asking) -> Answering:
    """The program behind ``cmd:…``."""
    trust.check(text)
    if data is None:
        raise UsageError(f"{text} does not say what inputs it takes; give the data too (data=… or --data)")
    try:
        words = shlex.split(text[len("cmd:") :])
    except ValueError as error:
        raise UsageError(f"{text!r} cannot be read as a command line: {error}") from error
    if not words:
        raise UsageError('cmd: names no program; write "cmd:python predict.py"')
    program = shutil.which(words[0])
    if program is None:
        raise UsageError(f"no program {words[0]!r} is found; give its path")
    return Answering(
        Program([program, *words[1:]], how.timeout or _TIMEOUT),
        data.spec,
        name=text,
        identity="cmd " + canonical_json([words, [_digest(word) for word in (program, *words[1:])]]),
        batch=how.batch or _BATCH,
        settled=False,
        patience=how.patience(0),
    )


def _answer(told: Any) -> Any:
    size = os.fstat(told.fileno()).st_size
    if size > _MOST:
        raise BadAnswer(f"wrote {size} bytes; an answer is one small array")
    if not size:
        raise BadAnswer("wrote nothing; the answer goes to stdout as numpy.save writes it")
    raw = told.read()
    try:
        answer = np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        hint = printable(raw[:200].decode("utf-8", "replace"), 60)
        raise BadAnswer(f"wrote what is no array as numpy.save writes it: {hint!r}") from error
    if not isinstance(answer, np.ndarray):
        raise BadAnswer("wrote an archive of arrays; one array is wanted, as numpy.save writes it")
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing is left running of what did not end by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ending(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _digest(word: str) -> str:
    """The content of a file that the command names, so that another program or other weights are another target."""
    path = Path(word)
    try:
        return sha256(path.read_bytes()) if path.is_file() else ""
    except OSError:
        return ""
