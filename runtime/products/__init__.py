"""Products as programs write them: einsum, tensordot, BLAS, sums. `@` and `dot`: `dispatch`."""
