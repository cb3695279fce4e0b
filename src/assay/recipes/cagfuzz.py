"""CAGFuzz: a CycleGAN's reconstructions as tests, kept alike by deep features (Zhang et al., TSE 2022)."""

from assay.recipes.recipe import Recipe

# Paper: the pool takes in failures too, and only tests with more active neurons count at all; the extractor is VGG-19
# with ImageNet weights; how many candidates are made of a parent, and how often it is taken, is not said; a test may be
# any number of steps from its seed; its code counts no pool, fc and flatten layers. Here: every failure that is like
# its parent is stored, and none gone on from, since what is made of it fails as well; the extractor is a small net
# trained on the data at hand, because the other is not always there (--set mutate.features=vgg19); ten candidates, five
# times, for there are fifty ways to reconstruct an image; five steps at most; all layers count.
CAGFUZZ = Recipe(
    name="cagfuzz",
    summary="Reconstructions by a CycleGAN that keep deep features; go on from those with more active neurons.",
    paper="Zhang et al., TSE 2022",
    mutate="nearest(of=cyclegan, candidates=10, top=5, features=reference)",
    valid=("similar(least=0.9)",),
    score=("active",),
    keep=("outdoes(score=active)",),
    coverage="nc(threshold=0.1)",
    schedule="pool(pick=time, mutants=5, times=5, depth=5)",
    train="plain(epochs=5, schedule=constant)",
)

CAGFUZZ_GLOBAL = Recipe(
    name="cagfuzz-global",
    summary="CAGFuzz going on from what covers neurons that nothing before it has covered.",
    paper="Zhang et al., TSE 2022",
    mutate="nearest(of=cyclegan, candidates=10, top=5, features=reference)",
    valid=("similar(least=0.9)",),
    keep=("gains",),
    coverage="nc(threshold=0.1)",
    schedule="pool(pick=time, mutants=5, times=5, depth=5)",
    train="plain(epochs=5, schedule=constant)",
)

# The controls: the same loop with changes as long as the generator's, in a random direction or up the target's loss.
CAGFUZZ_NOISE = Recipe(
    name="cagfuzz-noise",
    summary="CAGFuzz's loop with random noise, each as long as the change the generator makes: its control.",
    mutate="nearest(of=cyclegan, candidates=10, top=5, features=reference, control=noise)",
    valid=("similar(least=0.9)",),
    score=("active",),
    keep=("outdoes(score=active)",),
    coverage="nc(threshold=0.1)",
    schedule="pool(pick=time, mutants=5, times=5, depth=5)",
    train="plain(epochs=5, schedule=constant)",
)

CAGFUZZ_FGSM = Recipe(
    name="cagfuzz-fgsm",
    summary="CAGFuzz's loop with steps up the target's loss, each as long as the change the generator makes.",
    mutate="nearest(of=cyclegan, candidates=10, top=5, features=reference, control=fgsm)",
    valid=("similar(least=0.9)",),
    score=("active",),
    keep=("outdoes(score=active)",),
    coverage="nc(threshold=0.1)",
    schedule="pool(pick=time, mutants=5, times=5, depth=5)",
    train="plain(epochs=5, schedule=constant)",
)
