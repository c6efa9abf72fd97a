"""Investigating Generalization by Controlling Normalized Margin (Farhang et al. 2022): F1 to F9."""
