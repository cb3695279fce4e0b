"""A small net that misbehaves as the environment says, and the data it is asked about.

Two classes by whether the left or the right half is brighter. What ``UNRULY`` names happens on the *odd* inputs, those
with a bright bottom row (rows ``ODD`` of the data), or at the call that ``UNRULY_AT`` numbers. The net has the same
weights and the same text whatever it does, so that a run cannot know it is another one.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

NET = '''
import ctypes
import os
import time
from pathlib import Path

import torch
from torch import nn


class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")


class Unruly(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(8.0))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        does, at = os.environ.get("UNRULY", ""), int(os.environ.get("UNRULY_AT", "0"))
        flat = x.flatten(1)
        left = (x[:, 0, :, :3].flatten(1).sum(1) - x[:, 0, :, 3:].flatten(1).sum(1)) / 18
        out = torch.stack([left, -left], 1) * self.scale
        odd = x[:, 0, 5].amin(1) > 0.7
        if does == "noise":
            out = out + 0.3 * torch.randn_like(out)
        if does == "coins":  # of the odd ones, each row anew
            out = torch.where((odd & (torch.rand(len(x)) < 0.5))[:, None], -out, out)
        if does == "nan":
            out = out * torch.nan
        if does == "nan on some":  # of what noise makes, never of the data
            out = torch.where((x.amax((1, 2, 3)) > 0.67)[:, None] & ~odd[:, None], torch.inf, out)
        if does == "half":  # of which only half precision knows the end: 65504
            out = (out * 1.2e5).half()
        if does == "company":
            out = out + 4 * (flat - flat.mean(0)).mean(1)[:, None] * torch.tensor([1.0, -1.0])
        if does == "slow":
            began = time.monotonic()
            time.sleep(0.2)
            with open("calls.txt", "a") as file:
                file.write(f"{began} {len(x)}\\n")
        if does == "in place":  # as nets normalise that were written for one use of a batch
            x -= 0.3
            x *= 2.0
        if does == "one buffer" and not out.requires_grad:
            self.own = getattr(self, "own", {})
            out = self.own.setdefault(len(x), torch.empty_like(out)).copy_(out)
        if self.calls == at or (does.endswith("on odd") and bool(odd.any())):
            return self.misbehave(does, out)
        return out

    def misbehave(self, does, out):
        Path("misbehaving").touch()
        if does.startswith("raise"):
            raise ValueError("a bad input\\nwith more lines \\x1b[31m")
        if does.startswith("exit"):
            raise SystemExit(0)
        if does.startswith("mute"):
            raise Mute
        if does.startswith("hang"):
            time.sleep(3600)
        if does.startswith("stuck"):  # in code that no signal interrupts: a lock that is taken twice
            lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
            libc.pthread_mutex_lock(lock)
            libc.pthread_mutex_lock(lock)
        wrong = {"rows": out[:-1], "columns": torch.cat([out, out], 1), "none": None, "numbers": out.long()}
        return wrong.get(does.removesuffix(" on odd"), out)


def net():
    return Unruly()


def answers(x):
    """The same as a function."""
    return Unruly().forward(torch.from_numpy(x)).softmax(1).detach().numpy()
'''

ROWS, ODD = 128, (80, 81)
UNIT = 16  # seeds committed together
MODEL, DATA = "unruly.py:net@unruly.safetensors", "unruly.npz"


def unruly(folder: Path, odd: tuple[int, ...] = ODD) -> None:
    """Write the net, its weights, its data and the campaign to that folder."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.2, 0.6, (ROWS, 1, 6, 6)).astype(np.float32)
    side = np.arange(ROWS) % 2  # which half is a little brighter
    margin = rng.uniform(0.0, 0.06, ROWS)
    gap = x[:, 0, :, :3].mean((1, 2)) - x[:, 0, :, 3:].mean((1, 2))
    x[:, 0, :, :3] += ((np.where(side == 0, 1, -1) * margin - gap) / 2)[:, None, None]
    x[:, 0, :, 3:] -= ((np.where(side == 0, 1, -1) * margin - gap) / 2)[:, None, None]
    x = np.clip(x, 0.05, 0.65)
    for row in odd:
        x[row, 0, 5] = 0.9
    gap = x[:, 0, :, :3].mean((1, 2)) - x[:, 0, :, 3:].mean((1, 2))
    np.savez(folder / DATA, x=x, y=(gap < 0).astype(np.int64))
    save_file({"scale": torch.tensor(8.0)}, folder / "unruly.safetensors")
    (folder / "unruly.py").write_text(NET)
    (folder / "small.toml").write_text(f"[run]\nunit = {UNIT}\n")
