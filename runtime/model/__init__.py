"""Device models of chips, and predictions from them."""

STANDS_IN = "nvidia-h200"  # for a device that nobody has modelled
