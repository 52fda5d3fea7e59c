// The argument of every GEMM kernel, which it takes by value.

#include "shared_constants.cuh"
#include "shared_problem.cuh"

// Whether there is nothing to do. Uniform over the launch.
__device__ __forceinline__ bool is_shut(const Problem &p) {
    if (!p.gate) return false;
    int word;
    asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(word) : "l"(p.gate) : "memory");
    return word != p.open;
}
