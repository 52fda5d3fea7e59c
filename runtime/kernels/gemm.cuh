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

// A scheme as a kernel is compiled for it: the elements that are multiplied, the slices of each
// operand, and the terms, accumulator by accumulator, the smallest weight first: see `gemm.constants`.

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

// Arithmetic with one IEEE rounding an operation, subnormals included: kernels are compiled with
// subnormals flushed, which inline PTX is not, and `.rn` is never contracted.

namespace rounded {

__device__ __forceinline__ float add(float x, float y) {
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(x), "f"(y));
    return sum;
}
__device__ __forceinline__ float multiply(float x, float y) {
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(y));
    return product;
}
__device__ __forceinline__ float multiply_add(float x, float y, float z) {
    float sum;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(x), "f"(y), "f"(z));
    return sum;
}
__device__ __forceinline__ double add(double x, double y) { return __dadd_rn(x, y); }
__device__ __forceinline__ double multiply(double x, double y) { return __dmul_rn(x, y); }
__device__ __forceinline__ double multiply_add(double x, double y, double z) {
    return __fma_rn(x, y, z);
}

}  // namespace rounded

// Powers of two, and the exponents of those that are normal.
template <typename T> struct Precision;

template <> struct Precision<float> {
    static constexpr int lowest = -126, highest = 127;
    static __device__ __forceinline__ float power(int exponent) {
        return __int_as_float((exponent + 127) << 23);
    }
};

template <> struct Precision<double> {
    static constexpr int lowest = -1022, highest = 1023;
    static __device__ __forceinline__ double power(int exponent) {
        return __hiloint2double((exponent + 1023) << 20, 0);
    }
};
