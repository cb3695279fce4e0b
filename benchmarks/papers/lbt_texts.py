"""The sentences of LBT's page. Its numbers are computed from the rows."""

SCRIPT = "python benchmarks/papers/lbt.py"

LEAD = """\
LBT (Rahman and Eisty, September 2025) puts a pool of attacked inputs in an order in which those that a model gets
wrong should come first, with nothing of the model but its answers: a small stand-in is trained on them, mutated some
hundred times, and inputs on which the mutants change their mind soonest, by a sequential test, come first. The paper
tells an average fault-detection rate up to 0.95 and an APFD up to 0.50. **An APFD of 0.50 is what a random order has,
and no order has more where all inputs are faults**, so here stand beside both the share of faults in each pool, a
random order, and the question the paper leaves open: does the stand-in need mutants at all, or is its own uncertainty
(its Gini impurity, the **control**) as good?
"""

NOTHING = "No row has been computed yet, so nothing is said.\n"

READ_SO = """\
A seed is a stand-in with its mutants; the model under test and the pools are the same for all. LBT, its variants and
the control look at **the same stand-in** with a seed, so that their differences, seed by seed, are what counts:
*ahead* and *behind* mean that 0 lies outside mean ± standard deviation of these, else *level*. Against all others they
mean that mean ± standard deviation over seeds of the two do not touch. Both are told of one pool, or, in the answers,
of the means over pools of a data set (both models under test); *slightly* is by less than 0.01. No answer is given with
fewer than three seeds that all pools have, nor where all pools have more than 90 % faults. *p* is that of Wilcoxon's
signed-rank test over all pairs of a pool and a seed, two-sided, with the way the ranks point. *A12* (Vargha and
Delaney) is how likely a seed of LBT is above one of the other, in the mean over pools; 0.5 is no difference. Tables
have all {draws} draws of a random order; words, p and A12 have draws 0 to 4 beside the seeds 0 to 4. **Pairs are not
independent of each other**: seeds share model and pool, pools share the model, so that p is likely too small; and of so
many tests some come out low by chance.
"""

PROTOCOL = """\
## How it was measured

- **Models under test**: ResNet-20 and VGG-16 (batch normalisation) on MNIST and Fashion-MNIST, trained on the
  training part (55 000 images) by SGD with momentum, batch 128, cosine schedule; a fifth of the validation part
  chooses the epoch. Trained in bfloat16 (autocast) on a GPU; all that is measured is in single precision.
- **Pools**: of each of the 10 000 test images one attacked input, **failed attacks kept**. *FGSM*: linf 0.3 on MNIST,
  0.1 on Fashion-MNIST. *JSMA*: theta 1, gamma 0.12, towards the likeliest other class; it stops where the answer
  turns, and an image it cannot turn comes back as it was. These are the paper's two. Two are ours, because with
  hardly a failed attack there is nothing to be put in order: *FGSM, sizes drawn*: each change times a uniform draw
  from [0, 1); *JSMA on the other model*: made on the other model under test of the data set.
- **Faults**: inputs of the pool that the model gives another label than their clean parent has.
- **Measures**: the fault-detection rate (FDR) at k: faults among the first k over min(k, faults), k at 5, 10, 20, 30
  and 50 % of the pool, and the average of these five; the plain share of faults among the first k; APFD; APFD between
  its bounds (0: all faults last, 1: all first, random 0.5).
- **Seen**: LBT, its variants and the control get labels of their questions and nothing else: the model stands behind
  a wrapper that counts questions and hides the rest. *probabilities* and *white box* mark methods that see more.
  MetaSel also gets the true labels of up to 5 000 clean inputs: validation images that the model was not trained with,
  because it is right on nearly all others, and as many training images.
- **LBT**: LeNet-5, 200 start inputs a class from the training part (their labels are not used), 1 000 others to check
  it, tau 0.95 on MNIST and 0.90 on Fashion-MNIST, at most 6 rounds; 300 mutants (GF, NAI, NS at rate 0.05), delta 0.1
  kappa, alpha = beta = 0.05. Variants: the order by mutation score, by label-change rate, and delta 0.5 kappa.
  *Mutants of the model itself*: the same with the model in the stand-in's place (white box), without NS: in the version
  of the operator that there was when these rows were made, it switched two neurons at least in every layer, and none
  of its mutants of ResNet-20 was valid. It has been changed since (at low rates layers take part by lot); no row here
  tells how the model's mutants order with it.
- **Other orders**: random ({draws} draws a pool); Gini, largest probability, margin, entropy; LSA and DSA on the last
  layer before the logits, fitted to the training part; CTM and CAM of NC (0.5, 0.75), KMNC (1 000), NBC, SNAC and
  TKNC over all layers. Those that draw nothing have no spread.

Rows with their whole protocol: [lbt.jsonl](lbt.jsonl); this page: `make papers`, or
`{script} page`.
"""

AVERAGE_TEXT = """\
## Average FDR

Mean over the five budgets; ± is the standard deviation over seeds. *faults*: the share of the pool that is wrong,
which is what a random order finds at any budget below it. Bold: the best of those that see labels at most.
"""

NORM_TEXT = """\
## APFD between its bounds

1 where all faults come first, 0 where they come last, 0.5 for a random order in the mean, whatever the share of
faults. Bold as above.
"""

BUDGET_TEXT = """\
## By budget

FDR at each budget, the plain share of faults among the first 10 %, and APFD, whose bounds are m/2n and 1 − m/2n.
"""

TEST_TEXT = """\
## LBT against every other order

Over all pools: how many are ahead, level and behind; the mean difference over pairs of one pool and seed; Wilcoxon's
p, two-sided; A12. Variants of LBT and the control are judged by paired differences, others by seed spreads.
"""

AGREE_TEXT = """\
## Stand-in and model

*agreement*: the share of equal labels on the 1 000 inputs that the stand-in is checked on, and on the pool.
*queries*: all inputs the model was asked about; none of them is of the pool. FDR and APFD between its bounds on the
part of the pool where stand-in and model agree and where they do not, each as a pool of its own.

{ends}"""

TESTED_TEXT = """\
## The sequential test

*kappa*: the upper 99 % limit of label changes on clean inputs. *rejected*: mutants that were no use, for each
operator; *rates*: those the operators ended with. *saved*: the share of mutant answers that early decisions spared.
"""

DIVERSITY_TEXT = """\
## Diversity of the first cases

*log volume*: log det V Vᵀ, V the features (length 1) that a LeNet-5 trained apart gives to the first 100 inputs;
larger is more different (– where they are linearly dependent). *pairs* and *clusters*: distinct (true, predicted)
classes and k-means clusters (50 over all faults of the pool, on the same features) among the faults in the first 10
%. A method that finds more faults has more chances to hit a pair, so read it beside FDR at 10 %.
"""

RETRAIN_TEXT = """\
## Retraining

The first 10 % of an order with their true labels are added to the training part, and the model is trained further
(SGD 0.01, batch 64, epochs: {epochs}, the last one taken). **Two columns that are never mixed**: *static* is accuracy
on a pool made on the model as it was, from validation images that are in no other pool; *fresh* on the first of these
images attacked anew, on the net that came out. *no extra cases* is trained further as long; *before* is the model as
it was.

{clean}{helped}"""

SWEEP_TEXT = """\
## Other settings

One parameter changed at a time, on one pool for each, **but every value has stand-ins of its own, and a GPU does not
train the same stand-in twice for one seed**: what differs between two values may be the stand-in and not the value.
"""

DEVIATIONS = """\
## Where this is not the paper

Only the paper's abstract and digests of it were readable; what they do not tell is our definition (specification,
marked O): tau, lambda, rates, number of mutants, the score, the order rule, FDR, pools, baselines, diversity,
retraining.

- Pools keep failed attacks, which the paper may or may not do; two of the four pools are not the paper's.
- Epochs of retraining end with the last one, not with the best on clean images, which need not have learned the
  others.
- log volume is of the first 100, not of all k: of more inputs than features it is 0.
{epochs}- MetaSel is adapted: its paper has a fine-tuned model and its origin, here the model and the stand-in.
"""

LEAKED = """\
***clean* is contaminated in the rows below that have extra cases**: it is accuracy on the same test images whose
attacked copies were learned with their true labels, and says nothing of unseen images there. (Rows made from now on
have accuracy on the held validation images instead, which nothing learns from.)

"""

NET_TEXT = """\
*net*: all without NS, as with mutants of the model itself and for the same reason.
"""
