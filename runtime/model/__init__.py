"""What is known of a chip: device models, and what follows from them."""
