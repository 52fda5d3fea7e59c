"""The pass over graphs of PyTorch's compiler, beside the one over source text."""
