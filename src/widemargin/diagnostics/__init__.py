"""Diagnostics of data and of trained networks: wrong labels, explanations of decisions, the generalization gap.

issues = wm.label_issues(build, data, folds=4)
print(issues)                      # the labels that are most likely wrong, and what they should be
issues.page("label-issues.html")
print(wm.explain(model, x, y))     # the nearest other class, and the smallest change that reaches it
print(wm.predict_gap(model, train))  # training minus test accuracy, from the margins of training samples
"""

from widemargin.diagnostics.explanation import Explanation, Explanations, explain
from widemargin.diagnostics.gap_features import FEATURES, MarginSignature, margin_signature
from widemargin.diagnostics.gap_model import LinearGapModel, fit_gap_model, stored_model
from widemargin.diagnostics.generalization_gap import GapPrediction, predict_gap
from widemargin.diagnostics.label_issues import LabelIssues, label_issues

__all__ = [
    "FEATURES",
    "Explanation",
    "Explanations",
    "GapPrediction",
    "LabelIssues",
    "LinearGapModel",
    "MarginSignature",
    "explain",
    "fit_gap_model",
    "label_issues",
    "margin_signature",
    "predict_gap",
    "stored_model",
]
