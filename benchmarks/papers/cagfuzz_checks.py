"""Two checks of how tests are chosen, printed; no rows: the rank of the tests chosen, and which layers count neurons.

    python benchmarks/papers/cagfuzz_checks.py lenet5@m.safetensors --reference lenet5@r.safetensors --aeg a.safetensors

The model is a LeNet, ``--reference`` the net whose features say what is similar, ``--aeg`` what ``assay aeg`` made.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and as papers.cagfuzz_checks

from assay.core.chunks import Chunks
from assay.stages.aeg import Aeg
from assay.stages.extractors import features_of
from assay.stages.extractors.similarity import cosine
from assay.subjects.bench import Bench
from assay.subjects.data.load import load_data
from assay.subjects.sources.load import load_target
from assay.subjects.target import Target, answer
from papers.cagfuzz_choice import ACTIVE, NONE, Counter, chosen

CHUNKS = Chunks(256)
CANDIDATES, TOP = 10, 5
CODE_LAYERS = ("act1", "act2")  # of a LeNet: what is left without pool, fc and flatten layers


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--reference", required=True)
    parser.add_argument("--aeg", type=Path, required=True)
    parser.add_argument("--data", default="mnist/test")
    parser.add_argument("--images", type=int, default=400, help="of which the correctly classified ones are ranked")
    parser.add_argument("--more", type=int, default=600, help="images whose active neurons are counted")
    args = parser.parse_args(argv)
    target, data, aeg = load_target(args.model), load_data(args.data).cases, Aeg.load(args.aeg)
    some = data[: args.images]
    x = some.x[answer(target, some.x, CHUNKS).argmax(1) == some.y]
    ranks = ranked(target, args.reference, aeg, x)
    print(f"{int((ranks >= TOP).sum())} of {len(ranks)} tests of {len(x)} images rank below the {TOP} most similar")
    every, code = counted(target, aeg, data.x[: args.more])
    print(f"more active neurons, candidate 0: {every:.1%} counting all layers, {code:.1%} counting {CODE_LAYERS}")
    return 0


def ranked(target: Target, reference: str, aeg: Aeg, x: Tensor) -> Tensor:
    """The rank, 0 the most similar, of each image's test among its candidates."""
    features = features_of(Bench(target, chunks=CHUNKS), f"reference(model={reference})")
    made = [aeg.made(x, torch.full((len(x),), i)) for i in range(CANDIDATES)]
    here, counter = CHUNKS.map(features, x), Counter.of(target)
    like = torch.stack([cosine(CHUNKS.map(features, one), here) for one in made], 1)
    active = torch.stack([counter(one, CHUNKS) for one in made], 1)
    changed = torch.stack([(one != x).flatten(1).any(1) for one in made], 1)
    which = chosen(like, active, counter(x, CHUNKS), changed, must=False)
    rows = (which != NONE).nonzero().flatten()
    return like.argsort(1, descending=True).argsort(1)[rows, which[rows]]


def counted(target: Target, aeg: Aeg, x: Tensor) -> tuple[float, float]:
    """The share of images whose first candidate has more active neurons: of all layers, and of the code's."""
    counter = Counter.of(target)
    made = aeg.made(x, torch.zeros(len(x), dtype=torch.int64))
    with torch.no_grad(), target.ready():
        before, after = (CHUNKS.map(counter.scaled, one) > ACTIVE for one in (x, made))
    kept = torch.tensor([layer.name in CODE_LAYERS for layer in counter.observer.each])[counter.owner.cpu()]
    return share_more(before, after), share_more(before[:, kept], after[:, kept])


def share_more(before: Tensor, after: Tensor) -> float:
    """The share of rows with more true columns after than before.

    >>> share_more(torch.eye(2) > 0, torch.tensor([[1, 1], [0, 0]]) > 0)
    0.5
    """
    return float((after.sum(1) > before.sum(1)).double().mean())


if __name__ == "__main__":
    sys.exit(main())
