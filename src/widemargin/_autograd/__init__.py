"""Automatic differentiation beyond `torch.autograd`: Jacobian-vector products, batched backward passes, own rules."""
