"""Source text to source text: finds matrix products and puts runtime calls in their place."""
