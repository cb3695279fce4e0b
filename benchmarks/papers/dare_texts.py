"""The sentences of DARE's page. Its numbers are computed from the rows."""

SCRIPT = "python benchmarks/papers/dare.py"

LEAD = """\
DARE (ASE 2022; extended in TOSEM 2024) hardens a trained net without adversarial examples: it is cut after an inner
layer, the outputs that other epochs of its own training gave there, where they were surer of the true class, become
targets, and a slice of its weights is tuned towards them by squared error. The claim: more robust against attacks
nobody trained with than nets trained on the examples of any one attack. The paper measures it on examples made once on
the *original* net, with the smallest change that fools it (**static**). **Such examples lie just across the old
boundary, so that any change of the weights gives many of them their label back**: a high static number alone is no
robustness. So here stand beside DARE the same net with random noise as large on the same weights, and the net trained
by cross-entropy on the same data; and beside the static numbers, in tables of their own, attacks made anew on each net
(**fresh**).
"""

NOTHING = "No row has been computed yet, so nothing is said.\n"

READ_SO = """\
Arms of one seed start from the same net and are compared in pairs. *Ahead* and *behind* mean that the mean difference
over the seeds of a model is more than two standard errors (2·sd/√seeds) from 0, else *level*; a model with fewer
than three seeds is not counted. Two standard errors are a low bar with so few seeds: of comparisons in which nothing
differs, one in nine would be called ahead or behind with five seeds, one in five with three. *p* is that of Wilcoxon's
signed-rank test over all pairs of all models, one-sided as in the paper (is the first arm higher?). **Pairs of one
model are not independent of each other**: they share T, D and the test images, so that p is likely too small; and of so
many tests some come out low by chance.
"""

PROTOCOL = """
## How it was measured

- **Nets**: VGG-16, VGG-19 and AlexNet, each behind the normalisation of its data, so that all sizes below are those of
  pixels in [0, 1]. SGD with Nesterov momentum 0.9, batch 128, weight decay 5e-4, flips and shifts (no flips of digits),
  learning rate 0.05 (AlexNet 0.03), a tenth of it after half of the epochs, a hundredth after three quarters. The net
  is that of the best validation epoch. On a GPU what is trained from scratch is trained in bfloat16 (autocast); all
  that is done to a net afterwards is in single precision.
- **Data**: half of the training part (T) trains the net, the other half (D) is what DARE mines and what cross-entropy
  learns from; 5 000 images cut from the official training part choose the epoch of what is trained from scratch and
  nothing else; the official test part is only measured on.
- **Static**: on M, the original net, of the first test images that it gets right. *FGSM*: the smallest of 1 000 eps up
  to the whole range that fools. *BIM*: 10 steps of 0.05 along the gradient over the mean of its absolute values, mean
  absolute change 0.3 at most, then bisected (this is what foolbox 2 calls L1BasicIterativeAttack). *PGD*: 40 steps of
  0.01, linf 0.3, no random start, then bisected. *JSMA*: our `jsma`, pairs of entries up by 0.1 at a time towards the
  likeliest other class. *C&W*: our `cw`, l2. Only examples that fool M count. **ER** of a net is the share of them
  that it gives their true label; M itself stands at 0 but for rounding.
- **Fresh**: on each net itself, first test images, the share of all of them that is right and stays so. linf 8/255 and
  1/255 in colour, 0.1 and 0.02 in grey (*full* and *small ball*): FGSM, BIM-20, PGD-50 with 2 restarts; C&W within l2
  0.5 and 0.125, in grey 1 and 0.25; JSMA that may change 1 % of the entries by any amount (full ball only). The
  summary of a ball is the mean of its attacks. *smallest l2*: the mean size of C&W's changes, no bound. Undefended nets
  stand near 0 in the full ball, where differences say little; the small ball is there for that.
- **Clean**: the whole test part.

### Arms

- *original*: M. *DARE*: trainer `dare` as it stands: cut after the last convolution block, slice of units, the
  other epochs of the second half of its own training mined, up to 10 epochs, learning rate from 1e-6, 1e-5, 1e-4 and
  epoch by clean accuracy on a tenth of D.
- *weight noise*: M with Gaussian noise on exactly the weights that DARE moved, as long (L2) in each tensor.
  {draws}
- *DARE without slice*: all weights before the cut may move, not only those between the tenth of the units that react
  most to noise; *weight noise as large as that*: its own control, drawn as often.
- *cross-entropy on D*: M trained on D, Adam 1e-5, 10 epochs, epoch chosen on a tenth of D.
- *trained on FGSM* … *C&W*: the paper's baseline: M trained on examples of one attack, made on M of the first images
  of T, Adam 1e-4, 20 epochs, the epoch chosen on a fifth of them kept back. No layer is frozen.
- *distilled*: a net trained anew on T with M's answers at temperature 10.
- *trained on T and D*: a net trained anew on both halves with as many steps as M: what holding D back costs.
- Ablations: *ten steps, as the public code*: ten batches of 128, Adam 1e-5; *cut at the softmax*
  (dare-last); *no transformation*: the whole classifier by squared error to one-hot labels on the mined inputs, first
  third of the layers frozen; *random slice*; *slice of links* (NNSlicer's way); *cut before the logits*; *history made
  by fine-tuning*: ten epochs of SGD from M instead of other epochs of its own training (our variant).

Everything of one net and seed is computed in one process, since training on a GPU does not give the same net twice.
Rows with their whole protocol: [dare.jsonl](dare.jsonl); this page: `make papers`, or
`{script} page`.
"""

STATIC_TEXT = """\
## Scenarios: static ER, as the paper measures

A scenario is a net, a data set and the attack that made the examples. The paper's columns are means of its public
results, which lack BIM; they stand beside ours to be compared in kind, not in size: its examples come from training
images, from bounds that do not fit the inputs, and from nets of another training. Bold: the highest of DARE and the
five nets trained on one attack.

**One rule for this table and those of fresh attacks and clean accuracy**: all cells of a row, or of a table of one
model, are means over the same seeds, those that DARE and all five nets trained on one attack have; their number is
shown (*seeds*). An arm that lacks one of these seeds stands as –; what more there is of it is in the pairs below.
"""

RACE_TEXT = """\
Scenarios won: the highest mean ER, over the seeds that all arms of the race have; equal ones count for each. A
scenario decided on one seed or two is hardly decided.
"""

FRESH_TEXT = """\
## Fresh white-box attacks

Made anew on each net; never to be read beside a static number. Mean ± standard deviation over the seeds of the
scenarios above.
{draws}
"""

CHOSEN_TEXT = """\
## The learning rate is close to a lottery

DARE keeps, of three learning rates and their epochs, the net with the highest accuracy on a tenth of D. A few inputs
of that tenth decide between rates that differ by a hundred, so how far the weights move is close to chance (*gain*: how
many more of the tenth are right than with M; what the rates not chosen reached is not in the rows), and with it the
static number: DARE is another treatment from seed to seed.
"""

PAIRED_TEXT = """\
## DARE less the others, in pairs

Differences of one seed: standing, mean ± standard deviation over all seeds that both have (seeds above 0 / seeds).
"""

CLEAN_TEXT = """\
## Clean accuracy

On the whole test part, over the seeds of the scenarios above; in brackets the paper's, whose nets had 200 epochs.
"""

ABLATION_TEXT = """\
## Ablations, and how far weights move

Means over the seeds that all arms of a table have. *weights moved*: how many of all, and how far (L2); noise is as long
as the change it stands beside. *used*: mined inputs that another epoch of the net's own training is surer of.
"""

BESIDE_TEXT = """\
LeNet-5 is no net of the paper: it stands here, computed on a CPU and trained as its rows say, because device time did
not reach for the ablations of the others, and takes part in no race.
"""

EXAMPLES_TEXT = """\
## The static examples

How many of the images tried fool M, and how small the changes are: mean linf / l2 / changed entries, over all seeds.
"""

DEVIATIONS = """\
## Where this is not the paper

- Examples are made of test images, the paper's of training images of T. Bounds are (0, 1) with the normalisation in
  the net; the public code attacks with bounds (0, 255) nets that take standardised inputs.
- Fewer epochs than 200, and so a higher first learning rate; the rows say how many.
- FGSM, BIM and PGD as foolbox 2 has them by default, but eps is bisected 7 times, not 20, from the size of the
  smallest success; C&W with up to 4 searches of 100 steps, whose constant adapts, for 5 of 1 000; JSMA is ours: pairs
  of entries, upwards only, as often as there is room, 10 % of the entries at most (5 % in colour), where foolbox's
  changes one entry at a time, either way, 7 times at most, up to 2 000 steps.
- Fewer JSMA and C&W examples than others, for want of time.
- The slice, the masked units, full epochs and the choice of the learning rate are our definitions (specification,
  marked O): the public code does not run as published and the file with its masks is made by no public script. The arm
  *ten steps, as the public code* has its ten batches; they share no input, there each is drawn from all.
- Baselines freeze no layer: as published the AlexNet ones train nothing, and the VGG ones only the last layers.
- Distillation has the epochs that the rows say, not 100, and starts anew as in the paper: started from M, it would find
  nothing to learn, since M gives M's answers.
- Seeds are up to five trainings, the paper's nine values three models times three runs; T and D are the same for all
  seeds.
- The standing is two standard errors over seeds. The paper tests with Wilcoxon's signed ranks over the nine values of a
  scenario; here the pairs of all models stand in one test.
"""

SETTINGS_TEXT = f"""
Commands are arguments of `{SCRIPT} arms`. SVHN needs its file in `$ASSAY_DATA`. Of each
model, rows of its commonest settings stand on this page, and of each seed those of one net.
"""
