"""TwinFuzz: a resistant and a vulnerable model, and what fools both (Dai et al., AAAI 2026)."""

from assay.recipes.recipe import Recipe

# Paper (its public code): 1000 seeds, attacked on the vulnerable model, of which some twenty fool the resistant one
# too; cases may drift as far from the attacked seed as that is long, and count as found when they leave the mined
# class, even to become right. Here: the attack climbs the loss of both models, so that nine in ten carry over, because
# thousands of cases from a few dozen parents teach little (docs/papers/twinfuzz.md; seeds.attacked.model=vulnerable is
# the paper's way); distance and similarity are to the clean parent, within eps; a failure leaves the mined class and is
# wrong, and how many merely leave it is counted too. FOL is the gradient's length, as there: with an eps it would be
# the other form, which subtracts how far the case has come. The selector, without eps and norm, takes it from the run.
TWINFUZZ = Recipe(
    name="twinfuzz",
    summary="Attacked seeds that fool a resistant and a vulnerable model alike, driven to steep, uncertain regions.",
    paper="Dai et al., AAAI 2026",
    resistant="resistant",
    seeds=("attacked(model=both, count=5000)", "quality(keep=0.6)", "agreed(on=error)"),
    mutate="ascend(lr=0.1)",
    objective=("fol(norm=l2, eps=null)", "lib(beta=10)"),
    score=("fol(norm=l2, eps=null)", "zol", "entropy", "lib(beta=10)"),
    valid=("within(relative=1.0)", "quality"),
    keep=("rises(score=fol, strict=true)",),
    oracle="leaves_wrong",
    opinions=("leaves", "leaves_wrong"),
    schedule="queue(iters=2, order=first, depth=20, steps=100, pops=50, only_kept=false)",
    select='bi_end(eps=null, norm="")',
    train="plain(epochs=10, schedule=constant, best=floor)",
)

# Public code: distances are from the attacked seed, nothing is projected, every case that leaves the mined class is
# stored, right or wrong, near-copies too. Here as there; but attacks have their true starts and losses, labels are
# kept, classes are counted, and no epoch is chosen on the test part.
TWINFUZZ_CODE = Recipe(
    name="twinfuzz-code",
    summary="TwinFuzz as its public code does it: a sharpness filter, drift from the attacked seed, any change counts.",
    paper="Dai et al., AAAI 2026",
    resistant="resistant",
    seeds=("attacked(count=1000)", "tenengrad(most=1200)", "agreed(on=error)"),
    mutate="ascend(lr=0.1, eps=null)",
    objective=("fol(norm=l2, eps=null, safe=false)", "lib(beta=10)"),
    score=("fol(norm=l2, eps=null, safe=false)", "zol", "entropy", "lib(beta=10)"),
    keep=("rises(score=fol, strict=true, within=1.0, of=start)",),
    oracle="leaves",
    opinions=("leaves_wrong",),
    schedule="queue(iters=2, order=first, depth=50, pops=50, steps=1000, cases=1000, apart=0, only_kept=false)",
    select='bi_end(eps=null, norm="")',
    train="plain(epochs=10, schedule=constant, best=floor)",
)
