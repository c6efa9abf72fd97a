"""Diagnostics of data and of trained networks: wrong labels.

issues = wm.label_issues(build, data, folds=4)
print(issues)                      # the labels that are most likely wrong, and what they should be
issues.page("label-issues.html")
"""

from widemargin.diagnostics.label_issues import LabelIssues, label_issues

__all__ = ["LabelIssues", "label_issues"]
