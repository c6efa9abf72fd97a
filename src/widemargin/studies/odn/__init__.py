"""Optimal margin Distribution Network (Lv, Wang, Zhou 2018): O1 to O8."""
