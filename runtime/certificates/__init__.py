"""What a product is proved to be within, and the guarantee that goes by it."""
