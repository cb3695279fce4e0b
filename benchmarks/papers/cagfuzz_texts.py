"""The sentences of CAGFuzz's page. Its numbers are computed from the rows."""

SCRIPT = "python benchmarks/papers/cagfuzz.py"

LEAD = """\
CAGFuzz (Zhang et al., TSE 2022) makes tests without looking at the model: a CycleGAN is trained between two halves of
a data set, and what it makes of an image there and back is the test. A test must keep the image's deep features (cosine
above 0.9) and activate more neurons of the model than the image does. The paper tells that such tests teach a model
more than FGSM's (RQ1), find more errors than FGSM, DeepHunter's transforms and DeepXplore (RQ2), and make retrained
models more accurate (RQ3). It compares tools of unknown strength, has no control, and takes from the cosine that labels
hold. Here stand beside each tool **noise of the same length**, images **shown twice** instead of with a test, and **a
witness**, an accurate net that nobody attacked, which says whether an image's label still holds.
"""

NOTHING = "No row has been computed yet, so nothing is said.\n"

RQ2_ASKED = """\
### RQ2: does CAGFuzz find more errors?

On equal terms the cosine drops candidates of some tools and hardly any of others, so that tools have different numbers
of tests: errors are compared **per 100 tests**. *held*: errors for which the witness still gives the image's label.
*CAGFuzz minus it*: errors per 100 tests, seed by seed, with the 95 % interval. *own terms*: the first candidate of
every image, without any filter, so that every tool has as many tests as images. Means over models and seeds.
"""

POOR = """\
CIFAR-10's generator is a poor one: colours shift (see "What the generators make"), and errors there must be read so.
"""

RQ1_ASKED = """\
### RQ1: do CAGFuzz's tests teach more?

Accuracy on the whole test set after learning from few images with their tests: CAGFuzz minus the other arm, in points,
mean over models, 95 % interval. CAGFuzz's generator has seen the whole training part, FGSM only the few images; in the
last column the generator has seen only these few as well. In both the extractor has learned from the whole labelled
training part. The noise is as long as the tests of the first column, not of the last one; no FGSM arm is as long.
"""

RQ3_ASKED = """\
### RQ3: is a retrained model better?

After five epochs with CAGFuzz's tests: accuracy in %, and CAGFuzz minus the other arm, in points, mean over models,
95 % interval. *before*: the model as it was; *plain*: five epochs without tests; *twice*: with the images that the
tests were made of.
"""

READ_SO = """\
### How to read this

Answers are computed from the rows. Differences are taken seed by seed, of the means over a data set's three models (of
errors per 100 tests: of the tests of all three); the interval is Student's, 95 %. *More*, *less*, *higher* and *lower*
mean that 0 lies outside of it; where nothing differs this happens by chance to one interval in twenty. *No clear
difference* is no proof of none, least of all with two seeds, whose interval is wide. Seeds share the data set and its
generator, so that the interval tells of new nets and new draws and not of a new generator; models of a seed share their
images. **That the witness agrees is no proof that people would**, and where it does not, it may be the witness that is
wrong: what it says of clean images stands beside.
"""

PROTOCOL = """\
## How it was measured

- **Models**: LeNet-1, -4, -5 on MNIST and Fashion-MNIST (52, 148 and 268 neurons, as in the paper; ReLU), VGG-16,
  VGG-19 and ResNet-20 on CIFAR-10 (batch normalisation), trained on the training part, epoch chosen on the validation
  part. ImageNet models are not trained here.
- **Generator (AEG)**: one for each data set, `cyclegan` with its defaults (CIFAR-10: `images=5000`, two and a half
  times as long): halves at random (labels used for nothing but to make halves alike), trained on the whole training
  part; ten candidates an image: the five newest snapshots in both directions.
- **Extractor**: the penultimate layer of a LeNet-5 (CIFAR-10: a ResNet-20) of another seed than every model under
  test. Paper: VGG-19 with ImageNet weights, which are not at hand; **0.9 of one net's features is not 0.9 of
  another's.**
- **Active neurons**: channels whose mean, scaled by the smallest and largest number of the layer for that input,
  exceeds 0.1, over all layers, pools, logits and softmax too.
- **Witness**: ResNet-20 (CIFAR-10: ResNet-18), trained like the models with another seed.
- **Tools**: *CAGFuzz*; *noise, as long* and *FGSM, as long*: for each candidate noise, or a step along the sign of the
  loss gradient, of the candidate's L2; *FGSM, fixed eps*: linf 0.1 (CIFAR-10: 8/255), one candidate, since it draws
  nothing; *DeepHunter*: one of its eight transforms, drawn anew for each candidate, within its own rule of few or small
  changes; *DeepXplore*: light on which the model and its two siblings differ, one step a candidate, neurons drawn
  from those that no image covers. Its tests count where the **model under test** errs.
- **PGD, anew** (RQ3): linf 0.1 on MNIST, 0.02 on Fashion-MNIST, 1/255 on CIFAR-10. We chose these radii so that the
  models keep a part of their accuracy before retraining; they were not tuned on results.

Rows with their whole protocol: [cagfuzz.jsonl](cagfuzz.jsonl); this page: `make papers`, or
`{script} page`.
"""

RQ1_TEXT = """\
## RQ1: learning from few images (Tables 3 and 4)

Ten training images a class (CIFAR-10: 100), and for each a test: SGD, lr 0.05, 50 epochs, the net after the last one.
*original*: the images alone. *twice*: each image a second time, so as many steps as with tests; an image whose test was
dropped stands there a second time too. *FGSM on M*: made on M trained with *original*, kept where it activates more of
M's neurons. *CAGFuzz*: of the candidates above 0.9 that activate more of the model's neurons the most similar one;
*AEG of the sample*: its generator has seen these few images only. *noise*: on the images that have a CAGFuzz test,
each as long. With 40 test images (CIFAR-10: 100) one image is worth 2.5 points (1 point): the small test set is there
because the paper has nothing else.

What the arms know differs all the same. Both CAGFuzz arms, and noise by them, are chosen with an extractor that was
trained on **the whole labelled training part**; FGSM is not. Mean and standard deviation of the inputs come from 5000
training images for all arms. FGSM has a fixed eps, so that its changes are shorter or longer than CAGFuzz's (*mean
L2*: far shorter on CIFAR-10); there is no FGSM arm of equal length here. An image without a test stands there
twice, so that an arm that keeps few tests (*tests kept*) is near to *twice*.
"""

RQ2_EQUAL_TEXT = """\
## RQ2: errors on equal terms (Table 5)

Of each of the correctly classified test images every tool makes ten candidates; those with cosine 0.9 or less and those
that equal the image are dropped; the test is the most similar one left that activates more neurons than the image, else
the most similar one left. *errors*: tests that the model gives another label than their image has. *held*: errors for
which the witness still gives the image's label. *witness agrees*: the same share of all tests. Means over models, ±
over seeds. Paper's figures: one test each of 2000 images, strengths not told, which model not told.
"""

RQ2_OWN_TEXT = """\
## RQ2: errors, each tool as strong as it is

The first candidate of each image, whatever its cosine and its neurons; of DeepXplore the first step at which models
differ, else the twentieth.
"""

RQ3_TEXT = """\
## RQ3: retraining

Tests of training images, made as in RQ2 on equal terms: 65 % join the training part, 35 % the validation part, which
chooses the epoch, as in the paper. Five epochs more. *before*: the model as it was. *plain*: no tests. *twice*: the
images that CAGFuzz's tests were made of. Every arm but *plain* takes as many steps: a tool with fewer tests shows them
more often. Measured on images that nobody learned from: *clean* test set; *test + tests*: with CAGFuzz's tests of test
images, made on the model before (the paper's mixed set, which tests of the training images would make easier); *tests*
of test images of each tool, static; *PGD, anew*: made on the very net, linf 0.1 on MNIST, 0.02 on Fashion-MNIST, 1/255
on CIFAR-10, 20 steps. *validation + tests* is what the paper would look at: **the tests in it are of the same kind as
those learned**, and the epoch was chosen on it. All in %.
"""

SMOKE_TEXT = """\
## 224×224

Recipe `cagfuzz` on EfficientNet-Lite0 (ImageNet weights) and 20 images, its generator of width 16 trained for a few
steps on these. The extractor is the target's own net, so that likeness is not judged independently of the model under
test. It says that the whole of it runs on such images and nothing else; no claim is made.
"""

SHEETS_TEXT = "## What the generators make\n"

COLOURS_TEXT = """\
**On CIFAR-10 colours shift.** The public code's generator, and this one, normalise every block image by image, the
first one too, which forgets an image's brightness and contrast. `cyclegan(first_norm=false)` leaves the first one out:
cycle error 0.074 instead of 0.143 of the range after 3200 pairs ([docs/cagfuzz.md](../cagfuzz.md) has the commands). So
this generator is a poor one, and CIFAR-10's errors are in part errors under other colours. Rows with `first_norm=false`
were not run.
"""
