"""Our own studies, of `losses.WideMargin`: few samples, flipped labels, attacks, all of CIFAR-10, and cost."""
