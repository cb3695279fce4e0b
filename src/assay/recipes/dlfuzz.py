"""DLFuzz: one model, small steps (Guo et al., ESEC/FSE 2018)."""

from assay.recipes.recipe import Recipe

# Paper: classes are ranked at the case taken from the queue, which may have flipped. Here: at the seed, as in robot.
# Paper: what is found may lie at any distance. Here too: five steps of 0.02 cannot lead far, and on MNIST one step
# leaves the 2 % that a case may be away to be queued, so five are all there are.
DLFUZZ = Recipe(
    name="dlfuzz",
    summary="Climb rivals less the own class and five heavy neurons by small steps; go on from near cases that cover.",
    paper="Guo et al., ESEC/FSE 2018",
    mutate="ascend(lr=0.02, low=1, high=1, scale=rms)",
    objective=("0.5 * rivals(k=5, logits=true)", "-true_logit", "0.5 * neurons"),
    keep=("gains(least=0.01, wanes=true, within=0.02)",),
    coverage="nc(threshold=0.5)",
    strategy="heavy(k=5)",
    schedule="queue(iters=5, order=first, depth=20, steps=100, pops=20, only_kept=false, reopen=true)",
    train="plain(epochs=10, schedule=constant)",
)
