"""Diagnostics of data and of trained networks: wrong labels, and explanations of decisions.

issues = wm.label_issues(build, data, folds=4)
print(issues)                      # the labels that are most likely wrong, and what they should be
issues.page("label-issues.html")
print(wm.explain(model, x, y))     # the nearest other class, and the smallest change that reaches it
"""

from widemargin.diagnostics.explanation import Explanation, Explanations, explain
from widemargin.diagnostics.label_issues import LabelIssues, label_issues

__all__ = ["Explanation", "Explanations", "LabelIssues", "explain", "label_issues"]
