"""RobOT: loss-guided fuzzing (Wang et al., ICSE 2021)."""

from assay.recipes.recipe import Recipe

# Paper: nothing is said of the distance, of when the queue ends, or of near-duplicates. Here: the distance is that of
# the public code, to the seed and not to the parent; queue, steps and stored cases have caps; failures keep apart from
# each other, because otherwise 94 of 100 are near-copies. Labels of the rivals are those of the seed.
ROBOT = Recipe(
    name="robot",
    summary="FOL-Fuzz as the paper prints it: climb rivals - own class + FOL, keep what raises FOL or brings it to 0.",
    paper="Wang et al., ICSE 2021",
    mutate="ascend(lr=0.1)",
    objective=("rivals(k=5)", "-true_prob", "fol"),
    score=("fol", "zol"),
    valid=("within(relative=0.5)",),
    keep=("rises(score=fol)", "below(score=fol, level=1e-18)"),
    schedule="queue(iters=3, depth=2, steps=300, pops=100)",
    select="bi_end",
    train="plain(epochs=10, schedule=constant)",
)

# Public code: it keeps misclassified seeds, and judges against the class predicted for the seed. Here: such seeds are
# left out, and then prediction and label are one.
ROBOT_CODE = Recipe(
    name="robot-code",
    summary="FOL-Fuzz as its public code does it: climb FOL - own class, two steps a case, first in first out.",
    paper="Wang et al., ICSE 2021",
    seeds="steep(count=1000, least=0.001)",
    mutate="ascend(lr=0.1)",
    objective=("-true_prob", "fol"),
    score=("fol", "zol"),
    keep=("rises(score=fol, strict=true, within=0.5)",),
    schedule="queue(iters=2, order=first, depth=50, pops=50, steps=1000, cases=1000, apart=0, only_kept=false)",
    select="bi_end",
    train="plain(epochs=10, schedule=constant)",
)
