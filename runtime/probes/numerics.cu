// Many small matrices, each multiplied by one matrix instruction: D = C + A·B, bits as they come.
//
//   grid    a block per FRAGMENTS matrices
//   block   128 threads: mma.sync takes a warp per matrix, wgmma all four warps, 16 rows each
//   a       (count, ROWS, 32 bytes), rows of A        b   (count, 8, 32 bytes), columns of B
//   c, d    (count, ROWS, 8), float or int
//
// Whatever the element, 32 bytes of K are one instruction's depth, and lane 4 · r + w has words w
// and w + 4 of rows r and r + 8 of A, and the sums of columns 2 · w and 2 · w + 1 of both rows.
// INSTRUCTION: what stands before the operands; SCALES: what stands behind those of wgmma.

#if INTEGER
typedef int Sum;
#define SUM "+r"
#else
typedef float Sum;
#define SUM "+f"
#endif

constexpr int WARPS = WARPGROUP ? 4 : 1;  // to a matrix
constexpr int FRAGMENTS = 4 / WARPS;
constexpr int ROWS = 16 * WARPS;
constexpr int WORDS = 8;  // of a row of A, of a column of B, of a row of C

__device__ void multiply_fragment(Sum (&d)[4], const unsigned (&a)[4], const unsigned *b) {
#if WARPGROUP
    // As wgmma reads it unswizzled: 8 columns × 16 bytes, then the same of the second half of K.
    __shared__ __align__(128) unsigned shared[8 * WORDS];
    const int column = threadIdx.x / WORDS, word = threadIdx.x % WORDS;
    if (column < 8) shared[word / 4 * 32 + column * 4 + word % 4] = b[threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned address = unsigned(__cvta_generic_to_shared(shared));
    const unsigned long long stride = 128 >> 4;  // from one half of K to the other
    const unsigned long long descriptor = address >> 4 | stride << 16 | stride << 32;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" INSTRUCTION
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8" SCALES ";\n}"
                 : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor)
                 : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#else
    const int lane = threadIdx.x % 32;
    const unsigned *mine = b + lane / 4 * WORDS + lane % 4;
    asm volatile(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(mine[0]), "r"(mine[4]));
#endif
}

extern "C" __global__ void __launch_bounds__(128)
multiply(const unsigned *a, const unsigned *b, const Sum *c, Sum *d, long long count) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long fragment = (long long)blockIdx.x * FRAGMENTS + warp / WARPS;
    if (fragment >= count) return;  // whole warps, and for wgmma whole blocks
    const long long row = fragment * ROWS + warp % WARPS * 16 + lane / 4;
    const unsigned *from = a + row * WORDS + lane % 4;
    const unsigned rows[4] = {from[0], from[8 * WORDS], from[4], from[8 * WORDS + 4]};
    const long long place = row * WORDS + 2 * (lane % 4);
    Sum sums[4] = {c[place], c[place + 1], c[place + 8 * WORDS], c[place + 8 * WORDS + 1]};
    multiply_fragment(sums, rows, b + fragment * 8 * WORDS);
    d[place] = sums[0], d[place + 1] = sums[1];
    d[place + 8 * WORDS] = sums[2], d[place + 8 * WORDS + 1] = sums[3];
}
