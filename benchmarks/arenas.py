"""The arenas of docs/arena.md: each by several processes that share its rows, as one GPU is kept busy by small nets.

    python benchmarks/arenas.py mnist fashion-mnist --jobs 3 --limit 570 --out arenas

Trains the nets that rows start from where they are not there, runs the rows (or goes on with them) until they are done
or --limit seconds are over, writes OUT/arena-NAME.json and prints the tables. Rows have equal time on a machine that
they share: start as many processes each time, and no more than leave each as fast as it is alone (by NVIDIA's MPS,
nvidia-cuda-mps-control -d, six of LeNet-5 on an H200). Of fourteen, seeds of one row made up to five times the passes
of others in the same time; the tables say so. Bring OUT/NAME.safetensors home, too: rows go on from no other start.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

COLUMNS = "clean, static, pgd, autoattack[:500], l2, l1, spatial, corruptions"
TRAINERS = "batch=128, lr=5e-3, ema=0.999, warm=0.3"


@dataclass(frozen=True, slots=True)
class Setting:
    """One arena: the net and how its start is trained, the data, the ball, and what each row may take."""

    net: str
    data: str
    eps: str
    time: str
    start: str
    more: tuple[str, ...] = ()


_LENET = "--epochs 5 --batch 128 --lr 2e-3"
_RESNET = "--epochs 10 --batch 256 --lr 0.1 --optimiser sgd --weight-decay 5e-4 --augment flip,shift=0.125 --amp"
SETTINGS = {
    "digits": Setting("lenet5", "digits", "0.1", "10s", "--epochs 10 --batch 32 --lr 2e-3"),
    "mnist": Setting("lenet5", "mnist", "0.3", "30s", _LENET),
    "fashion-mnist": Setting("lenet5", "fashion-mnist", "0.1", "30s", _LENET),
    "cifar10-resnet20": Setting("resnet20", "cifar10", "8/255", "45s", _RESNET, ("--amp",)),
    "cifar10-resnet18": Setting("resnet18", "cifar10", "8/255", "45s", _RESNET, ("--amp",)),
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("names", nargs="+", choices=SETTINGS)
    asked.add_argument("--out", type=Path, default=Path("arenas"))
    asked.add_argument("--jobs", type=int, default=1, help="processes an arena")
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--cases", type=int, default=1000)
    asked.add_argument("--part", default="test", help="val to choose by")
    asked.add_argument("--columns", default=COLUMNS)
    asked.add_argument("--row", action="append", default=[], help="these rows alone")
    asked.add_argument("--limit", type=float, default=float("inf"), help="seconds after which they are stopped")
    told = asked.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    os.chdir(told.out)  # so that commands in the rows name no folder of this machine
    for name in told.names:
        _start(SETTINGS[name], name)
    words = {name: _words(SETTINGS[name], name, told) for name in told.names}
    running = [_begun(line, Path(f"{name}-{job}.log")) for job in range(told.jobs) for name, line in words.items()]
    until = time.monotonic() + told.limit
    while any(one.poll() is None for one in running) and time.monotonic() < until:
        time.sleep(0.2)
    for one in running:
        one.terminate()
        if one.wait() not in (0, 2):  # 2: stopped, and to be gone on with
            print(f"a process ended with exit code {one.returncode}; see the .log files", file=sys.stderr)
    for name in filter(lambda name: Path(_folder(name, told)).is_dir(), told.names):
        whole = subprocess.run([*_assay(), "arena", _folder(name, told), "--json"], check=True, capture_output=True)
        Path(f"{_folder(name, told)}.json").write_bytes(whole.stdout)
        subprocess.run([*_assay(), "arena", _folder(name, told), "--markdown"], check=True)


def _assay() -> list[str]:
    return [sys.executable, "-m", "assay"]


def _folder(name: str, told: argparse.Namespace) -> str:
    return f"arena-{name}" if told.part == "test" else f"arena-{name}-{told.part}"


def _start(setting: Setting, name: str) -> None:
    weights = Path(f"{name}.safetensors")
    if weights.exists():
        return
    shutil.rmtree(f"{name}.history", ignore_errors=True)
    given = ["--data", setting.data, *setting.start.split(), "--history", "all", "--out", str(weights), "--quiet"]
    subprocess.run([*_assay(), "train", setting.net, *given], check=True)


def _words(setting: Setting, name: str, told: argparse.Namespace) -> list[str]:
    given = ["--data", setting.data, "--eps", setting.eps, "--time", setting.time, "--trainers", TRAINERS]
    given += ["--columns", told.columns, "--cases", str(told.cases), "--val-cases", "200", "--part", told.part]
    given += ["--seeds", str(told.seeds), "--out", _folder(name, told), "--quiet", *setting.more]
    rows = [word for row in told.row for word in ("--row", row)]
    return ["arena", f"{setting.net}@{name}.safetensors", *given, *rows]


def _begun(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        one = {"OMP_NUM_THREADS": "1"} | os.environ  # several on few cores wait for each other
        return subprocess.Popen([*_assay(), *words], stdout=file, stderr=subprocess.STDOUT, env=one)


if __name__ == "__main__":
    main()
