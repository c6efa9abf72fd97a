"""CUDA graphs, checks without a GPU sync, and Triton kernels."""
