"""Source text to source text: finds matrix products and puts runtime calls in their place."""

MAX_BYTES = 4 << 20  # of a source file
