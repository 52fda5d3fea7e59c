// Instructions of sm_80 and later: copies to shared memory, fragments from there, and products.

#include "shared_instructions.cuh"

__device__ __forceinline__ void copy16(unsigned to, const unsigned char *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups of copies but the last PENDING ones have arrived.
template <int PENDING> __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// Multiplies 16 rows by 8 columns over 32 bytes of K. sum: two neighbours in a row, two 8 rows below.
__device__ __forceinline__ void multiply(Sum *sum, const unsigned (&a)[4], const unsigned *b) {
    asm volatile("mma.sync.aligned.m16n8k" PRODUCT_K ".row.col." SUM_TYPE "." A_TYPE "." B_TYPE
                 "." SUM_TYPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : BIND(sum[0]), BIND(sum[1]), BIND(sum[2]), BIND(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ldmatrix takes the address of one row of a matrix from each lane, and gives a lane word
// (row lane / 4, bytes 4 · (lane % 4)) of each: what mma wants of either operand, whatever the
// element. The second half of a step is two chunks on, which the swizzle makes an exclusive or.
__device__ __forceinline__ unsigned swizzled(int row, int chunk) {
    return row * STEP + ((chunk ^ (row >> 1 & 3)) << 4);
}

// Matrices of A: rows 0–7, rows 8–15; the same one chunk on.
__device__ __forceinline__ unsigned lane_of_a(int first_row, int lane) {
    return swizzled(first_row + lane % 16, lane / 16);
}

// Matrices of B: columns 0–7, the same one chunk on; columns 8–15 likewise.
__device__ __forceinline__ unsigned lane_of_b(int first_column, int lane) {
    return swizzled(first_column + lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
