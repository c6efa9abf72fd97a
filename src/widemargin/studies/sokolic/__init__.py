"""Robust Large Margin Deep Neural Networks (Sokolić et al. 2017): S1 to S5."""
