"""The exact backward pass of margin losses with constant denominators, at about the cost of cross-entropy's.

`backward` has the method, and the reasons for which two backward passes are taken instead.
"""
