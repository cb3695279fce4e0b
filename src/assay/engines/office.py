"""The desk with Ray Train behind it: who holds this actor holds the whole training, and ends it with the actor.

Ray Train in the driver's own process would take Ctrl-C for itself, and could not be ended before it has ended.
"""

import asyncio
import os
import tempfile
from functools import partial
from typing import Any

from assay.core.extras import needed
from assay.engines.desk import Desk, Failure
from assay.engines.rank import work

PATIENCE = 24 * 3600  # seconds that ranks wait for each other: rank 0 may judge an epoch for long
# How Ray Train works here: it looks after its workers often, leaves them in their folder, and tells nobody.
SETTINGS = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


class Office(Desk):
    """An actor: its process is its own, so it may set the environment that Ray Train reads."""

    async def train(self, job: list[Any], count: int, share: float) -> None:
        """Train with ``count`` workers that each have a ``share`` of a GPU, 0 for none; ``job`` is where the job lies.

        Ray Train starts the group again as often as it loses a worker; the desk says when it is too often.
        """
        os.environ.update(SETTINGS)
        try:
            await asyncio.to_thread(_fit, job[0], count, share)
        except Exception as error:  # noqa: BLE001  the driver, who alone may end the command, is told
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            await self.fail(Failure("", f"Ray Train: {first}"))


def _fit(job: Any, count: int, share: float) -> None:
    ray, train, joined = (needed(name, "ray", "--ray") for name in ("ray", "ray.train", "ray.train.torch"))
    desk = ray.get_runtime_context().current_actor
    resources = {"CPU": 1.0, **({"GPU": share} if share else {})}
    # Two ranks on one GPU is what NCCL refuses; gloo goes by way of the host.
    backend = "nccl" if share == 1 else "gloo"
    with tempfile.TemporaryDirectory(prefix="assay-ray-", ignore_cleanup_errors=True) as scratch:
        joined.TorchTrainer(
            partial(work, job, desk),
            torch_config=joined.TorchConfig(backend=backend, timeout_s=PATIENCE),
            scaling_config=train.ScalingConfig(num_workers=count, use_gpu=bool(share), resources_per_worker=resources),
            run_config=train.RunConfig(
                name="training", storage_path=scratch, failure_config=train.FailureConfig(max_failures=-1)
            ),
        ).fit()
