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

READ_SO = """\
Answers are computed from the rows. Differences are taken seed by seed and, where a data set is spoken of, of the means
over its three models; the interval is Student's, 95 %. *More* and *less* mean that 0 lies outside of it. Seeds share
the data set and its generator, so that the interval tells of new nets and new draws and not of a new generator; models
of a seed share their images. **That the witness agrees is no proof that people would**, and where it does not, it may
be the witness that is wrong: what it says of clean images stands beside.
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
  exceeds 0.1, over all layers.
- **Witness**: ResNet-20 (CIFAR-10: ResNet-18), trained like the models with another seed.
- **Tools**: *CAGFuzz*; *noise, as long* and *FGSM, as long*: for each candidate noise, or a step along the sign of the
  loss gradient, of the candidate's L2; *FGSM, fixed eps*: linf 0.1 (CIFAR-10: 8/255), one candidate, since it draws
  nothing; *DeepHunter*: one of its eight transforms, drawn anew for each candidate, within its own rule of few or small
  changes; *DeepXplore*: light on which the model and its two siblings differ, one step a candidate, neurons drawn
  from those that no image covers. Its tests count where the **model under test** errs.

Rows with their whole protocol: [cagfuzz.jsonl](cagfuzz.jsonl); this page: `make papers`, or
`{script} page`.
"""

RQ1_TEXT = """\
## RQ1: learning from few images (Tables 3 and 4)

Ten training images a class (CIFAR-10: 100), and for each a test: SGD, lr 0.05, 50 epochs, the net after the last one.
*original*: the images alone. *twice*: each image a second time, so as many steps as with tests; an image whose test was
dropped stands there a second time too. *FGSM on M*: made on M trained with *original*, kept where it activates more of
M's neurons. *CAGFuzz*: of the candidates above 0.9 that activate more of the model's neurons the most similar one;
*AEG of the sample*: its generator has seen these few images only, as all other arms have, and not the whole training
part. *noise*: on the images that have a CAGFuzz test, each as long. With 40 test images (CIFAR-10: 100) one image is
worth 2.5 points (1 point): the small test set is there because the paper has nothing else.
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
steps on these. It says that the whole of it runs on such images and nothing else; no claim is made.
"""

SHEETS_TEXT = """\
## What the generators make

A row an image: the image, there, back again (which is the test), and the difference enlarged.
"""

DEVIATIONS = """\
## What differs from the paper

- VGG-19's ImageNet features are replaced by those of a net of the data set; the threshold is the paper's 0.9.
- Candidates are told apart by snapshots of the generator and by direction: the paper's generator gives one image.
- RQ1: batch 32 (CIFAR-10: 128) without momentum, since with the paper's code's batch of 256 an epoch of 100 images is
  one step; images without a test stand there twice, so that arms take as many steps.
- RQ2: every tool on equal terms, which the paper does not have; DeepXplore counts errors of one model under test.
- RQ3: five epochs of retraining for all tables (the paper's Fig. 8 has 50 and 70), tests of test images measured apart
  from those that were learned.
- ImageNet: no training, one smoke run. "ResNet-20" has 20 layers here; the paper's code has about 38.
"""
