"""`mixpert bench gemm`: schemes beside every mode of cuBLAS, and the targets of one device."""
