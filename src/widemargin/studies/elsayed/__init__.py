"""Large Margin Deep Networks for Classification (Elsayed et al. 2018): E1 to E18."""
