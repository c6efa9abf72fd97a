"""The exact backward pass of margin losses with constant denominators, at about the price of cross-entropy's."""
