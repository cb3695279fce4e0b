"""CAGFuzz's mutation: there and back again by a CycleGAN."""

from pathlib import Path

import torch
from torch import Tensor

from assay.core.cases import Cases
from assay.core.chunks import Chunks
from assay.core.errors import UsageError
from assay.core.randomness import Rows
from assay.core.registry import register
from assay.stages.aeg import Aeg, Making, aeg_of
from assay.stages.aeg.domains import domains
from assay.stages.aeg.nets import depth_of
from assay.stages.aeg.training import named
from assay.subjects.asked import Asked
from assay.subjects.bench import Bench
from assay.subjects.sources.load import pick_device


@register("mutator", paper="CAGFuzz 2022", needs=("start",))
def cyclegan(
    bench: Bench,
    cases: Cases,
    *,
    rng: Rows,
    aeg: str = "",
    split: str = "random_half",
    images: int = 2000,
    epochs: int = 8,
    batch: int = 8,
    width: int = 32,
    lr: float = 2e-4,
    beta: float = 0.5,
    schedule: str = "constant",
    loss: str = "lsgan",
    cycle: float = 10.0,
    identity: float = 1.0,
    buffer: int = 50,
    flip: bool = False,
    first_norm: bool = True,
    snapshots: int = 5,
    seed: int = 0,
) -> Tensor:
    """The reconstruction of each image by a generator trained on the data, or by that of the file ``aeg``.

    The column ``candidate`` says by which of its directions and snapshots; without it one of the first 2·snapshots is
    drawn: both directions of each snapshot. The other parameters are those of the training (``Making``).

    Formula: x' = F(G(x)), two generators trained with adversarial + cycle·‖F(G(x)) − x‖₁ + identity·‖G(x') − x'‖₁
    losses.
    """
    making = Making(
        split=split,
        images=images,
        epochs=epochs,
        batch=batch,
        width=width,
        lr=lr,
        beta=beta,
        schedule=schedule,
        loss=loss,
        cycle=cycle,
        identity=identity,
        buffer=buffer,
        flip=flip,
        first_norm=first_norm,
        snapshots=snapshots,
        seed=seed,
    )
    making.check()
    depth_of(bench.target.spec.shape)  # refuses what is no image
    if aeg and making != Making():
        raise UsageError(f"cyclegan: {aeg} is a generator that is made already; leave the other parameters out")
    if not len(cases) and not aeg:
        if bench.training is not None:
            domains(bench.training, making)  # refuses classes that are not there
        return cases.x.clone()  # a rehearsal, for which nothing is trained
    maker = _opened(bench, aeg) if aeg else aeg_of(bench, making)
    numbers = cases.info.get("candidate")
    if numbers is None:
        numbers = rng.integers((1,), 2 * maker.snapshots).squeeze(1)
    return maker.made(cases.x, numbers)


def _opened(bench: Bench, path: str) -> Aeg:
    """The generator of a file, for inputs of this target."""

    def load() -> Aeg:
        if not Path(path).is_file():
            raise UsageError(f"there is no generator {path}; make it: assay aeg DATA --out {path}")
        maker, spec = Aeg.load(Path(path)), bench.target.spec
        if maker.shape != spec.shape or maker.bounds != spec.bounds:
            raise UsageError(
                f"{path} was made for images {_form(maker.shape, maker.bounds)}, the model takes "
                f"{_form(spec.shape, spec.bounds)}; make one for them: assay aeg DATA --out FILE"
            )
        maker.chunks = Chunks(bench.chunks.size, alone=True)  # another net than the target
        device: torch.device = pick_device() if isinstance(bench.target, Asked) else bench.target.device
        return named(bench, maker.to(device))

    return bench.once(f"aeg file {path}", load)


def _form(shape: tuple[int, ...], bounds: tuple[float, float]) -> str:
    return f"{'×'.join(map(str, shape))} in [{bounds[0]:g}, {bounds[1]:g}]"
