"""Records of products: the site, the operands, the time, the error, and the reason."""
