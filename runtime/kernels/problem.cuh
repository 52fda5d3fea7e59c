// One product C = alpha · A·B + beta · C_in, or a batch of them, as every GEMM kernel takes it.
//
// Passed by value, 200 bytes. Every 8-byte field lies at a multiple of 8, and the host fills up
// the end. The loader joins this text in front of a kernel's.

struct Operand {
    // (batch, steps, count, rows8, 64) bytes, chunks swizzled, 32 KiB readable past the end.
    const unsigned char *slices;
    // (batch, blocks, rows): E << 9 | g, where a unit of the highest slice is g · 2^E.
    const int *scales;
    long long slices_stride;  // bytes from one product's slices to the next's; 0: shared by all
    long long scales_stride;  // bytes, likewise
    int rows;                 // m of A, n of B
    int rows8;                // rows, rounded up to a multiple of 8
};

struct Problem {
    Operand a;
    Operand b;
    void *c;                 // (batch, m, n) float, or double where WIDE
    const void *c_in;        // of the same type; not read, and may be null, where beta is 0
    long long c_stride;      // elements from one product's C to the next's
    long long c_in_stride;   // elements; 0: shared by all
    long long c_leading;     // elements from one row of C to the next, ≥ n
    long long c_in_leading;  // elements
    double alpha;            // both are rounded to float unless WIDE
    double beta;
    int batch;
    int steps;               // of 64 bytes of K; 0: C = beta · C_in
    int blocks;              // that have scales of their own; 1 for floating-point slices
    int steps_per_block;     // 0 where blocks are half a step (32 integers)
    int stretch;             // ≥ 1: steps that INT32 accumulators cover at most; 508 is exact
    int group;               // ≥ 1: rows of tiles walked together, so that operands stay in L2
    // Tiles of a last wave that would leave most of the chip idle, each cut into parts along K.
    int *parts;              // zeros: a count of parts done per such tile, padded to 32, then sums
    int tail;                // such tiles; 0: none
    int split;               // parts of each
    const int *gate;         // null, or what an earlier kernel has written: where that is not
    int open;                // `open`, nothing is done
};

// Whether there is nothing to do. Uniform over the launch.
__device__ __forceinline__ bool is_shut(const Problem &p) {
    if (!p.gate) return false;
    int word;
    asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(word) : "l"(p.gate) : "memory");
    return word != p.open;
}
