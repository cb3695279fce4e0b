"""TensorFuzz: noise with novelty of the logits as feedback (Odena et al., ICML 2019)."""

from assay.recipes.recipe import Recipe

# Paper: it ends at the first input found, and looks for neighbours in an approximate tree. Here: it goes on, as every
# recipe does, and looks among all vectors kept. Its threshold of 1 on the square is one of 1 on the distance itself.
# Paper: 100 mutants of one parent, then the next is taken. Here: one of each, because all lanes draw among the same six
# parents at once: 256 lanes give each some 43. With 100 of each, lines of descent stay short and find nothing.
TENSORFUZZ = Recipe(
    name="tensorfuzz",
    summary="Gaussian noise, going on from logits unlike all before, for inputs whose class in float16 is another.",
    paper="Odena et al., ICML 2019",
    seeds="drawn(count=100)",
    mutate="jitter(sigma=0.2)",
    oracle="quantised(dtype=float16)",
    keep=("gains",),
    coverage="cc(distance=1.0, most=16384)",
    layers="logits",
    schedule="pool(pick=recent, mutants=1)",
)

TENSORFUZZ_NAN = Recipe(
    name="tensorfuzz-nan",
    summary="Gaussian noise, going on from logits unlike all before, for inputs answered with NaN or infinity.",
    paper="Odena et al., ICML 2019",
    seeds="drawn(count=100)",
    mutate="jitter(sigma=0.2)",
    oracle="nonfinite",
    keep=("gains",),
    coverage="cc(distance=1.0, most=16384)",
    layers="logits",
    schedule="pool(pick=recent, mutants=1)",
)
