// A scheme as a kernel is compiled for it: the elements that are multiplied, the slices of each
// operand, and the terms, accumulator by accumulator, the smallest weight first.

#include "shared_constants.cuh"

#ifndef ELEMENT
#define ELEMENT ELEMENT_INT8                                  // or another ELEMENT_…
#define COUNT_A 3                                             // slices
#define COUNT_B 3
#define ACCUMULATORS 3
#define TERMS {0, 2}, {1, 1}, {2, 0}, {0, 1}, {1, 0}, {0, 0}  // slice of A, slice of B
#define TERM_ENDS 3, 5, 6                                     // per accumulator, the end of its terms
#define WEIGHTS -16, -8, 0                                    // per accumulator, ascending
#endif

struct Term {
    int left, right;
};

// Read in constant expressions only: a table that is indexed in a loop lands in memory.
__host__ __device__ constexpr Term term(int index) {
    constexpr Term terms[] = {TERMS};
    return terms[index];
}
__host__ __device__ constexpr int term_end(int accumulator) {
    constexpr int ends[] = {TERM_ENDS};
    return accumulator < 0 ? 0 : ends[accumulator];
}
__host__ __device__ constexpr int weight(int accumulator) {
    constexpr int weights[] = {WEIGHTS};
    return weights[accumulator];
}
