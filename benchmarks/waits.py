"""How often a step of fuzzing waits for the GPU, by torch's profiler, and how much of the time the GPU works.

    python benchmarks/waits.py lenet5@m.safetensors --data mnist/train --lanes 16384

Forty steps of a running campaign are looked at; the profiler itself makes them slower.
"""

import argparse
import os
import tempfile
import time

import torch
from torch.profiler import ProfilerActivity, profile

from assay.engines.fuzz import fuzz
from assay.engines.lanes import Lanes

FIRST, STEPS = 60, 40
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "aten::item")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", default="robot")
    parser.add_argument("--lanes", type=int, default=16384)
    parser.add_argument("--seconds", type=float, default=12.0)
    args = parser.parse_args()
    real, looked = Lanes.step, profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    count, began, wall = 0, 0.0, 0.0

    def step(self: Lanes) -> bool:
        nonlocal count, began, wall
        count += 1
        if count == FIRST:
            torch.cuda.synchronize()
            began = time.perf_counter()
            looked.start()
        elif count == FIRST + STEPS:
            torch.cuda.synchronize()
            looked.stop()
            wall = time.perf_counter() - began
        return real(self)

    Lanes.step = step  # type: ignore[method-assign]  # the one place that every step passes
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASSAY_RUNS"] = folder
        fuzz(args.recipe, args.model, args.data, time=args.seconds, lanes=args.lanes, device="cuda")
    told = looked.key_averages()
    busy = sum(row.self_device_time_total for row in told if row.device_type.name == "CUDA") / 1e6
    print(f"{STEPS} steps: {wall:.2f} s, the GPU busy for {busy:.2f} s")
    for name in WAITS:
        print(f"{name:24} {sum(row.count for row in told if row.key == name) / STEPS:7.1f} a step")


if __name__ == "__main__":
    main()
