"""A reader who types what a page says, in a folder of their own, with less time and fewer inputs than it says."""

import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import doc_blocks
from assay import cli
from assay.core import registry
from assay.core.units import seconds
from doc_blocks import ROOT, Block

SHELL_SIGNS = ("|", ">", "&&", ";", "&", "$(")
NOT_TYPED = ("pip", "git", ".", "source", "cd", "export", "docker")  # set-up of the reader's own machine
MAY_NOT_HOLD = ("harden", "check", "replay", "eval")  # verbs that exit 1 where a requirement or a check says so
MOST = {
    "--time": "1s",
    "--fuzz-time": "1s",
    "--epochs": "2",
    "--rounds": "1",
    "--val-cases": "40",
    "--test-cases": "40",
}
SLICED = {"eval": 20, "transfer": 12, "coverage": 60, "prioritise": 120}  # inputs of a named part, where none are said
QUICK = r"\1(start=20, rounds=1, check=100)"  # of methods that train a stand-in
DIGITS_EPOCHS = 8  # seconds, and a net worth testing
SECONDS = 300.0
PAGE = "page"  # the module that the Python of a page is in


class Reader:
    """Runs the blocks of a page in order; ``skipped`` lists what was not run, and why."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": PAGE}
        self.skipped: list[str] = []
        self.ran = 0
        self._served: list[subprocess.Popen[bytes]] = []
        self._ports: dict[str, str] = {}

    def read(self, page: Path) -> None:
        """All blocks of the page."""
        for block in doc_blocks.blocks(page):
            self._block(block)

    def _block(self, block: Block) -> None:
        if block.why:
            self.skipped.append(f"{block.place}: {block.why}")
        elif block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text + "\n", encoding="utf-8")
        elif block.language == "python":
            self.ran += 1
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), self.names)
        else:
            for number, line in doc_blocks.commands(block):
                self._command(f"{block.page.name}:{number}", line)

    def _command(self, place: str, line: str) -> None:
        words = doc_blocks.words(line)
        with _environment(words) as words:
            if not words:
                return
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"{place}: {line}"
            elif words[0] in NOT_TYPED:
                self.skipped.append(f"{place}: {words[0]} is for the reader's own machine")
            elif words[0] == "python" and len(words) > 1 and words[1].startswith(("benchmarks/", "tools/")):
                assert (ROOT / words[1]).is_file(), f"{place}: {line}"
                self.skipped.append(f"{place}: a benchmark")
            elif words[0] == "assay" and words[-1] == "&":
                self._serve(place, words[1:-1])
            elif words[0] == "assay" and not any(sign in words for sign in SHELL_SIGNS):
                self._assay(place, line, words[1:])
            else:
                self._shell(place, line)

    def _assay(self, place: str, line: str, words: list[str]) -> None:
        self.ran += 1
        if words[0] == "train" and "--out" in words and "--overwrite" not in words:
            (self.folder / words[words.index("--out") + 1]).unlink(missing_ok=True)  # the page makes it itself
        code = cli.run([self._local(word) for word in small(words)])
        said = re.search(r"#.*\bexit (\d)", line)
        allowed = {int(said[1])} if said else {0, 1} if words[0] in MAY_NOT_HOLD else {0}
        assert code in allowed, f"{place}: {line}\nexit {code}"

    def _shell(self, place: str, line: str) -> None:
        self.ran += 1
        shown = self._local(line)
        env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", shown], capture_output=True, env=env, timeout=SECONDS, cwd=self.folder)
        told = (done.stdout + done.stderr).decode()[-3000:]
        assert done.returncode == 0, f"{place}: {line}\nexit {done.returncode}\n{told}"

    def _serve(self, place: str, words: list[str]) -> None:
        """A service in the background, at a port that is free."""
        self.ran += 1
        at = words.index("--port")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._ports[words[at + 1]] = str(free.getsockname()[1])
        words[at + 1] = self._ports[words[at + 1]]
        self._served.append(subprocess.Popen([sys.executable, "-m", "assay", *words], stderr=subprocess.DEVNULL))
        until = time.monotonic() + 60
        while time.monotonic() < until:
            assert self._served[-1].poll() is None, f"{place}: the service ended"
            with socket.socket() as knock:
                if knock.connect_ex(("127.0.0.1", int(words[at + 1]))) == 0:
                    return
            time.sleep(0.2)
        raise AssertionError(f"{place}: the service does not answer")

    def _local(self, word: str) -> str:
        for told, real in self._ports.items():
            word = word.replace(f"127.0.0.1:{told}", f"127.0.0.1:{real}").replace(
                f"localhost:{told}", f"localhost:{real}"
            )
        return word

    def close(self) -> None:
        """Services end, and what a page registered is forgotten."""
        for key in [key for key, (entry, _) in registry._runtime.items() if entry.module == PAGE]:
            del registry._runtime[key]
        for process in self._served:
            process.terminate()
            process.wait(30)


@contextmanager
def _environment(words: list[str]) -> Iterator[list[str]]:
    """``NAME=value`` before a command, for its length."""
    before = dict(os.environ)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    try:
        yield words
    finally:
        os.environ.clear()
        os.environ.update(before)


def small(words: list[str]) -> list[str]:
    """The same command with less time, fewer epochs, and a few inputs of a named part of a data set."""
    out = list(words)
    for place, (option, value) in enumerate(itertools.pairwise(words), 1):
        if option in ("--time", "--fuzz-time"):
            out[place] = MOST[option] if seconds(value) > seconds(MOST[option]) else value
        elif option in MOST and value.isdigit():
            few = DIGITS_EPOCHS if option == "--epochs" and "digits" in words else int(MOST[option])
            out[place] = str(min(int(value), few))
        elif option in ("--data", "--pool") and words[0] in SLICED:
            found = re.fullmatch(r"([a-z0-9-]+(?:/\w+)?)(?:\[:(\d+)\])?", value)
            out[place] = f"{found[1]}[:{min(int(found[2] or 9999), SLICED[words[0]])}]" if found else value
        elif option == "--by":
            out[place] = re.sub(r"\b(lbt|metasel)\b(?!\()", QUICK, value)
    return [*out, *_more(words)]


def _more(words: list[str]) -> list[str]:
    """Limits that the page leaves to their defaults, which take minutes."""
    line, more = " ".join(words), []
    if words[0] == "harden" and "--config" not in words:
        for name in ("--rounds", "--val-cases", "--test-cases"):
            more += [name, MOST[name]] if name not in words else []
        more += ["--set", "train.epochs=1"] if "train.epochs" not in line else []
        trains = "--recipe" not in words or "--recipe dare" in line or "--recipe assay" in line
        more += ["--fuzz-time", "1s"] if "--fuzz-time" not in words and not trains else []
        more += ["--time", "1s"] if trains and "--time" not in words and "--recipe dare" not in line else []
    if words[0] == "arena" and "--data" in words and "--val-cases" not in words:
        more += ["--val-cases", MOST["--val-cases"]]
    if words[0] == "fuzz" and not {"--time", "--cases", "--config", "--show-config"} & set(words):
        more += ["--time", "1s"]
    if "--recipe twinfuzz" in line and "--resistant" not in words and "--show-config" not in words:
        more += ["--set", "resistant.epochs=1"]
    if words[0] == "aeg":
        more += ["--set", "epochs=1", "--set", "images=40", "--set", "width=8"]
    if "--recipe cagfuzz" in line and "mutate.of.aeg" not in line:
        more += ["--set", "mutate.of.epochs=1", "--set", "mutate.of.images=40", "--set", "mutate.of.width=8"]
    if "--recipe cagfuzz" in line and "mutate.features" not in line:
        more += ["--set", "mutate.features=reference(model=mlp, epochs=1, steps=0)"]
    return more


def furnish(folder: Path, digits: Path, data: Path) -> None:
    """What pages take for granted: weights of digits, and of nets for sets that look like the named ones, but small.

    ``data`` becomes ``$ASSAY_DATA``: images of digits in the shapes of MNIST, Fashion-MNIST and CIFAR-10.
    """
    shutil.copy(digits, folder / "digits.safetensors")
    shutil.copy(digits, folder / "new.safetensors")
    images = load_digits()
    x, y = (images.images * (255 / 16)).astype(np.uint8), images.target.astype(np.int64)
    grey = np.pad(np.kron(x, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    colour = np.repeat(np.kron(x, np.ones((1, 4, 4), np.uint8))[..., None], 3, 3)
    for name, pixels in (("mnist", grey), ("fashion_mnist", grey), ("cifar10", colour)):
        np.savez(data / f"{name}.npz", x_train=pixels[:1400], y_train=y[:1400], x_test=pixels[1400:], y_test=y[1400:])
    np.savez(folder / "new.npz", x=grey[:60], y=y[:60])
    np.savez(folder / "old.npz", x=grey[60:800], y=y[60:800])
    np.savez(folder / "unlabelled.npz", x=grey[:60])
