"""DeepXplore: differential testing of several models (Pei et al., SOSP 2017)."""

from assay.recipes.recipe import Recipe

# Paper: the models under test take turns in being the odd one out, and what is found may lie at any distance. Here: the
# target is, and light ends at half of the range (see mutator constrained).
DEEPXPLORE = Recipe(
    name="deepxplore",
    summary="Light or dirt on which models differ: climb the others' scores less the target's, and uncovered neurons.",
    paper="Pei et al., SOSP 2017",
    seeds="agreed",
    mutate="constrained(kind=light, step=10)",
    objective=("disagreement(weight=1)", "0.1 * neurons"),
    oracle="disagree",
    coverage="nc(threshold=0)",
    strategy="uncovered(k=1)",
    counted="failures",
    schedule="queue(iters=20, depth=1, steps=20, pops=1, cases=1, apart=0)",
    alone="deepxplore-alone",
    train="plain(epochs=10, schedule=constant)",
)

# RobOT's comparison calls this DeepXplore: its choice of neurons in the loop of ADAPT.
DEEPXPLORE_ALONE = Recipe(
    name="deepxplore-alone",
    summary="One model alone: climb ten neurons that nothing has covered, less the own class, in the loop of ADAPT.",
    paper="Wang et al., ICSE 2021",
    mutate="ascend(lr=0.1, low=1, high=1)",
    objective=("0.5 * neurons", "-0.5 * true_logit"),
    valid=("within(relative=0.5)",),
    keep=("gains(within=0.5, by=seed)",),
    coverage="nc(threshold=0.5)",
    strategy="uncovered(k=10, by=seed)",
    schedule="queue(iters=3, order=first, depth=20, steps=150, pops=50, only_kept=false, reopen=true)",
    train="plain(epochs=10, schedule=constant)",
)
