// Whether too many rows of A, or columns of B, have left the slices: word = 1, else 0. One block.

#include "shared_constants.cuh"

constexpr unsigned OUTLIERS = OUTLIER * 0x01010101u;  // in four flags

__device__ int outliers(const unsigned char *flags, long long count) {
    int found = 0;
    const long long sixteens = count / 16;
    for (long long i = threadIdx.x; i < sixteens; i += blockDim.x) {
        const uint4 some = ((const uint4 *)flags)[i];
        found += __popc(some.x & OUTLIERS) + __popc(some.y & OUTLIERS) +
                 __popc(some.z & OUTLIERS) + __popc(some.w & OUTLIERS);
    }
    for (long long i = sixteens * 16 + threadIdx.x; i < count; i += blockDim.x)
        found += (flags[i] & OUTLIERS) != 0;
    return found;
}

// Flags are aligned to 16 bytes. most: rows that may leave.
extern "C" __global__ void __launch_bounds__(1024)
guard(const unsigned char *a, long long a_count, long long a_most, const unsigned char *b,
      long long b_count, long long b_most, int *word) {
    __shared__ unsigned long long in_a, in_b;
    if (threadIdx.x == 0) in_a = in_b = 0;
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    const int mine_a = __reduce_add_sync(~0u, outliers(a, a_count));
    const int mine_b = __reduce_add_sync(~0u, outliers(b, b_count));
    if (threadIdx.x % 32 == 0) {
        if (mine_a) atomicAdd(&in_a, (unsigned long long)mine_a);
        if (mine_b) atomicAdd(&in_b, (unsigned long long)mine_b);
    }
    __syncthreads();
    if (threadIdx.x == 0) *word = in_a > a_most || in_b > b_most;
}
