"""Products on NVIDIA GPUs: whose arrays, which device, what pays, and the steps of a product."""
