// The type of entries, and of two neighbours, or of both parts of a complex number.

#ifndef SINGLE
#define SINGLE 0  // whether entries are float32
#endif

#ifdef Value  // a type of integers, and Pair
#elif SINGLE
typedef float Value;
typedef float2 Pair;
#else
typedef double Value;
typedef double2 Pair;
#endif

// x − y. Subnormal numbers are kept, too.
__device__ __forceinline__ double difference(double x, double y) { return x - y; }
__device__ __forceinline__ float difference(float x, float y) {
    float found;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}

// Two neighbours.
__device__ __forceinline__ void load_two(Value &x, Value &y, const Value *from) {
    const Pair both = *(const Pair *)from;
    x = both.x, y = both.y;
}
__device__ __forceinline__ void store_two(Value *to, Value x, Value y, bool paired) {
    if (paired) *(Pair *)to = {x, y};
    else to[0] = x, to[1] = y;
}
// Stores x and y at places `at` and `at` + 1, as far as these lie before `end`.
__device__ __forceinline__ void store_apart(Value *to, long long apart, Value x, Value y, int at,
                                            int end) {
    if (at < end) to[0] = x;
    if (at + 1 < end) to[apart] = y;
}
__device__ __forceinline__ void store_some(Value *to, Value x, Value y, int at, int end, bool paired) {
    if (paired && at + 1 < end) store_two(to, x, y, true);
    else store_apart(to, 1, x, y, at, end);
}
