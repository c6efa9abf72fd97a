"""Sentences of the page "What holds": the effect of every study in one line, and what made the difference."""

from __future__ import annotations

TOPICS: tuple[tuple[str, str], ...] = (
    ("Wrong labels, few samples", "E3 E4 E11 E12 O2 O3 S2 S3"),
    ("Attacks and noise", "E5 E6 E7 E8 E9 E13 E14"),
    ("Plenty of clean data", "E1 E2 E10 E16 O1 O4"),
    ("Shape of the margins", "E15 O5 O6 O7"),
    ("Normalized margins", "F1 F2 F3 F4 F5 F6 F7 F8 F9"),
    ("Theory", "E17 E18 O8 S1 S4 S5"),
)
"""Title, and the studies that belong to it."""

EFFECTS: dict[str, tuple[str, str, str]] = {
    "E1": (
        "two classes in the plane",
        "margin above cross-entropy on test data",
        "On two classes in the plane a margin at every layer gains {} points.",
    ),
    "E2": ("all of MNIST", "margin l_inf (", "Trained on all of MNIST, an l∞ margin has {} %."),
    "E3": (
        "flipped labels",
        "at 80 % flipped labels, l_2 margin minus",
        "With 80 % of MNIST's labels flipped an l₂ margin gains {} points.",
    ),
    "E4": ("few samples", "at 68 samples", "With 68 samples of MNIST an l∞ margin gains {} points."),
    "E5": ("white-box FGSM", "margin l_inf above", "Under white-box FGSM an l∞ margin gains {} points."),
    "E6": ("white-box IFGSM", "margin l_inf above", "Under white-box IFGSM an l∞ margin gains {} points."),
    "E7": ("black-box FGSM", "margin l_inf above", "Under black-box FGSM an l∞ margin gains {} points."),
    "E8": ("black-box IFGSM", "margin l_inf above", "Under black-box IFGSM an l∞ margin gains {} points."),
    "E9": ("Gaussian noise", "margin l_inf above", "Under Gaussian noise an l∞ margin gains {} points."),
    "E10": ("all of CIFAR-10", "margin l_inf", "Trained on all of CIFAR-10, an l∞ margin has {} %."),
    "E11": (
        "flipped labels of CIFAR-10",
        "margin l_2 minus",
        "With flipped labels of CIFAR-10 an l₂ margin gains {} points on average.",
    ),
    "E12": ("few samples of CIFAR-10", "at 5 %", "With 5 % of CIFAR-10 an l₁ margin gains {} points."),
    "E13": ("FGSM on CIFAR-10", "at ε = 0.1", "Under black-box FGSM on CIFAR-10 an l₁ margin gains {} points."),
    "E14": (
        "ImageNet",
        "at ε = 0.1, white-box FGSM, margin minus",
        "Under white-box FGSM on ImageNet an l₁ margin gains {} points.",
    ),
    "E15": (
        "distances over training",
        "margin above cross-entropy at input, test",
        "On CIFAR-10 a margin loss raises the mean distance, of softmax scores, by {} powers of ten.",
    ),
    "E16": (
        "cost of a step",
        "a margin step over",
        "A margin step of WRN-28-10 against 9 classes takes {} steps of cross-entropy.",
    ),
    "E17": (
        "linear classifiers",
        "margin over the SVM's, digits",
        "A linear classifier trained for margins is the SVM: it has {} of its margin.",
    ),
    "E18": (
        "closed form of the distance",
        "largest relative difference from a convex solver in l_inf",
        "The closed form of the distance is a convex solver's, up to {} of it.",
    ),
    "O1": ("ODN on all of MNIST", "MNIST, ODN", "Trained on all of MNIST, the ODN loss has {} %."),
    "O2": (
        "ODN with few samples",
        "at 0.125 % of the training set (68 samples), ODN minus Xent",
        "With 68 samples of MNIST ODN gains {} points.",
    ),
    "O3": (
        "ODN with few samples of CIFAR-10",
        "at 0.5 % of the training set (225 samples), ODN minus Xent",
        "With 225 samples of CIFAR-10 ODN gains {} points.",
    ),
    "O4": (
        "ODN with batch norm and dropout",
        "with batch norm, 100 % of the data, with dropout: ODN minus",
        "With batch norm and dropout ODN gains {} points on CIFAR-10.",
    ),
    "O5": (
        "compactness in t-SNE",
        "MNIST, test: classes more compact with ODN than with hinge",
        "In t-SNE, ODN's ratio of variances between and within classes is {} above the hinge's.",
    ),
    "O6": (
        "compactness of classes",
        "MNIST, test: classes more compact with ODN than with hinge",
        "On test images, ODN's ratio of variances between and within classes is {} above the hinge's.",
    ),
    "O7": (
        "spread of the margins",
        "mean over standard deviation: ODN above Xent",
        "The mean over standard deviation of ODN's margins is {} above cross-entropy's.",
    ),
    "O8": (
        "bounds of odn",
        "networks on which Bartlett's complexity",
        "ODN's complexity term is below Bartlett's on {} % of the networks.",
    ),
    "S1": (
        "ReLU networks on the plane",
        "training samples whose Jacobian bound",
        "The Jacobian bound on margins is sharper than that by norms on {} % of the samples.",
    ),
    "S2": (
        "Jacobian regularizer",
        "MNIST-5000",
        "With 5,000 samples the Jacobian regularizer gains {} points over weight decay in an MLP.",
    ),
    "S3": (
        "Jacobian regularizer in a CNN",
        "CCE: LM above WD",
        "With 256 to 1,024 samples the Jacobian regularizer gains {} points over weight decay in a CNN.",
    ),
    "S4": (
        "Jacobians and distances",
        "MNIST, fully connected: pairs with f(x′)",
        "f(x′) − f(x) is the mean Jacobian times x′ − x on {} % of the pairs.",
    ),
    "S5": (
        "bounds and depth",
        "MNIST: factor by which (21)",
        "At a fixed product of norms the bound by norms grows {} times a layer.",
    ),
    "F1": (
        "margins without control",
        "spectrally-normalized margins of true",
        "By plain descent, spectrally-normalized margins are larger for true labels, by {}.",
    ),
    "F2": (
        "margins with control",
        "spectrally-normalized margins of random",
        "By Recipe 1, spectrally-normalized margins are larger for random labels, by {}.",
    ),
    "F3": (
        "attack-set twins",
        "at α = 0.631, the attack set costs",
        "With equal normalized margins an attack set costs {} points of test accuracy.",
    ),
    "F4": (
        "sampled and trained twins",
        "somewhere the test",
        "Sampled and trained networks of equal outputs differ in test accuracy in {} seeds.",
    ),
    "F5": (
        "twins on CIFAR-10",
        "somewhere the test",
        "On CIFAR-10, sampled and trained CNNs of equal outputs differ in test accuracy in {} seeds.",
    ),
    "F6": ("errors of twins", "worst relative error, 0 v 1", "The outputs of twins agree: worst relative loss {}."),
    "F7": (
        "normalized margin",
        "Recipe 1: test accuracy",
        "A targeted normalized margin of 1 gains {} points over the smallest one.",
    ),
    "F8": (
        "averages of networks",
        "largest difference of acc",
        "An average of m networks is as accurate as √m times the margin, up to {} points.",
    ),
    "F9": (
        "averages of Gaussian processes",
        "largest difference of acc",
        "An average of m Gaussian-process draws is as accurate as √m times the margin, up to {} points.",
    ),
}
"""Study → its subject, the beginning of the text of one claim, and a sentence about it, with braces for our number."""

Pair = tuple[str, str]
DIFFERENCES: tuple[tuple[str, str, tuple[Pair, ...]], ...] = (
    (
        "E1",
        "Second-order gradients: with the exact gradient through its denominators the margin loss gains {0} points, "
        "with detached ones, the form that the paper trains, {1}.",
        (("margin l_2", "cross-entropy"), ("margin l_2, denominators detached", "cross-entropy")),
    ),
    (
        "O2",
        "Search: one search seed gave the printed ODN loss a rate at which most of its seeds died. A rate at which a "
        "search seed dies is refused now, and dead seeds are counted.",
        (),
    ),
    (
        "E7",
        "Attacks: the paper's are unclipped and take the plain float32 gradient, which large margins mask. Its "
        "accuracies are compared under its own attack, orders under a safe one.",
        (),
    ),
    (
        "E3",
        "Form of the loss: on softmax scores, as printed, it does not train where most labels are wrong; on logits, "
        "with γ in units of the input, it does.",
        (),
    ),
)
"""Study, sentence, and the pairs of arms whose mean differences of accuracy fill its braces."""
