"""What differs from the paper, and what the rows cannot tell."""

from collections.abc import Iterator, Sequence

from papers.cagfuzz_rq2 import EQUAL
from papers.cagfuzz_tables import one, over_models, sets, title
from papers.cagfuzz_texts import SCRIPT
from papers.cagfuzz_tools import CAGFUZZ, FGSM, NOISE, TITLES
from papers.dare_verdict import wrapped
from papers.rows import Row
from papers.tables import pick

CHECKS = SCRIPT.replace(".py", "_checks.py") + " MODEL --reference NET --aeg FILE"
LIKE = (CAGFUZZ, NOISE, FGSM)  # whose candidates are equally long

FIXED_LINES = (
    "VGG-19's ImageNet features are replaced by those of a net of the data set; the threshold is the paper's 0.9.",
    "Candidates are told apart by snapshots of the generator and by direction: the paper's generator gives one image.",
    "The five most similar candidates: **not applied** in RQ1 to RQ3, where a test may be any of the ten above 0.9. In "
    f"a check 42 of 396 tests of MNIST (11 %) had rank 6 to 10: `{CHECKS}`, with nets and a generator trained apart "
    "from those of the rows.",
    "Active neurons: **all layers count**, pools, logits and softmax too, which gives the paper's numbers of neurons; "
    "the public code leaves out pool, fc and flatten layers. It matters: of LeNet-5 and 600 MNIST images 45.3 % of the "
    "first candidates have more active neurons here, and 3.7 % with the code's layers (the same "
    "command).",
    "RQ1: batch 32 (CIFAR-10: 128) without momentum, since with the paper's code's batch of 256 an epoch of 100 images "
    "is one step; images without a test stand there twice, so that arms take as many steps.",
    "RQ2: every tool on equal terms, which the paper does not have; DeepXplore counts errors of one model under test.",
    "RQ3: five epochs of retraining for all tables (the paper's Fig. 8 has 50 and 70), tests of test images measured "
    "apart from those that were learned.",
    'ImageNet: no training, one smoke run. "ResNet-20" has 20 layers here; the paper\'s code has about 38.',
)


def deviations(rows: Sequence[Row]) -> str:
    lines = [*FIXED_LINES[:-1], *more_active(rows), *lengths(rows), *repeated(rows), FIXED_LINES[-1]]
    return "\n".join(["## What differs from the paper\n", *(wrapped(f"- {line}", "  ") for line in lines), ""])


def more_active(rows: Sequence[Row]) -> Iterator[str]:
    """How many of CAGFuzz's tests keep the paper's rule of coverage."""
    every = pick(rows, experiment="rq2", terms=EQUAL, tool=CAGFUZZ)
    told = [f"{one(over_models(pick(every, data=d), 'more'), 100)} % on {title(d)}" for d in sets(every)]
    if told:
        yield (
            "RQ2 and RQ3: a test **need not activate more neurons** than its image; such a one is only preferred. Of "
            f"CAGFuzz's tests of RQ2 more are active in {', '.join(told)} (column *more active*)."
        )


def lengths(rows: Sequence[Row]) -> Iterator[str]:
    """The lengths of the tests that were chosen."""
    every = pick(rows, experiment="rq2", terms=EQUAL)
    told = []
    for data in sets(every):
        sizes = {tool: one(over_models(pick(every, data=data), "l2", tool=tool), 1, 2) for tool in LIKE}
        told.append(f"{title(data)} " + ", ".join(f"{TITLES[t]} {size}" for t, size in sizes.items() if size != "–"))
    if told:
        yield (
            "*As long* holds candidate by candidate; then each tool has its own nearest one chosen, so that **the "
            f"lengths of the tests differ** on equal terms. Mean L2 of RQ2: {'; '.join(told)}."
        )


def repeated(rows: Sequence[Row]) -> Iterator[str]:
    """Where the arms of RQ3 learn from fewer tests than CAGFuzz has."""
    every = pick(rows, experiment="rq3")
    for data in sets(every):
        own = pick(every, data=data)
        means = {tool: over_models(own, "distinct", arm=tool) for tool in LIKE}
        if not all(means.values()):
            continue
        mine, noise, fgsm = (sum(v.values()) / len(v) for v in means.values())
        if min(noise, fgsm) < mine / 2:
            yield (
                f"RQ3 on {title(data)}: the cosine leaves few tests of the controls, which are shown again and again. "
                f"Distinct tests learned, mean over models: CAGFuzz {mine:.0f}, noise, as long {noise:.0f} (each "
                f"{mine / noise:.0f} times an epoch), FGSM, as long {fgsm:.0f} ({mine / fgsm:.0f} times)."
            )
