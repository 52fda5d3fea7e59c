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
