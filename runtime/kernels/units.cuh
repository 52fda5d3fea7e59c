// From sums to elements of C, on Hopper: units, and stores of two neighbours.

#if WIDE
typedef double Value;
#else
typedef float Value;
#endif

// A unit g · 2^E in two factors, since 2^(EA + EB) may be no normal number although C is. The first
// carries g, and gA · gB is exact: so a sum is rounded once, or once more where C is subnormal. The
// factors of the largest units, E = 113, still have products below 2^128.
struct Unit {
    Value one, two;
};

__device__ __forceinline__ Unit unit(int significand, int exponent) {
    int half = (exponent >> 1) - 5;
    return {(Value)significand * Precision<Value>::power(half),
            Precision<Value>::power(exponent - half)};
}

__device__ __forceinline__ Value scaled(Value x, const Unit &a, const Unit &b) {
    return rounded::multiply(rounded::multiply(x, a.one * b.one), a.two * b.two);
}

// Two neighbours at an even place in shared memory.
__device__ __forceinline__ void load_units(Unit (&b)[2], const Unit *from) {
#if WIDE
    b[0] = from[0], b[1] = from[1];
#else
    float4 both = *(const float4 *)from;
    b[0] = {both.x, both.y}, b[1] = {both.z, both.w};
#endif
}

// A scale, asked for here and now: the compiler may not put it off until it is used.
__device__ __forceinline__ int load_now(const int *scale) {
    int word;
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(word) : "l"(scale));
    return word;
}

// Whether two neighbours can be stored at once.
__device__ __forceinline__ bool is_paired(const Value *c) {
    return ((unsigned long long)c & (2 * sizeof(Value) - 1)) == 0;
}

__device__ __forceinline__ void load_two(Value &x, Value &y, const Value *c) {
#if WIDE
    double2 two = *(const double2 *)c;
#else
    float2 two = *(const float2 *)c;
#endif
    x = two.x, y = two.y;
}

__device__ __forceinline__ void store_two(Value *c, Value x, Value y, bool paired) {
    if (!paired) {
        c[0] = x;
        c[1] = y;
        return;
    }
#if WIDE
    *(double2 *)c = make_double2(x, y);
#else
    *(float2 *)c = make_float2(x, y);
#endif
}
