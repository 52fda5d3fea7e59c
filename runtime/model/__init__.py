"""What is known of a chip: device models, and what follows from them."""

STANDS_IN = "nvidia-h200"  # for a device that nobody has modelled
