"""The pass over graphs of PyTorch's compiler."""
