// What each thread holds of the matrices that tensor cores multiply.
//
// mma.sync: every launch has one element of A that is 1, in the rest of A zeros, and in B numbers
// that name its elements. What a sum is then names the element of B that met that one of A.
// wmma: a matrix whose elements are their own places in memory is loaded, and registers are copied.
//
// ELEMENT 0: m16n8k16 of FP16; 1: m16n8k32 of INT8.

typedef unsigned int u32;

#if ELEMENT == 0
constexpr int PARTS = 2;  // elements of a register
typedef float Sum;
#define SHAPE "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#define SUM(x) "+f"(x)
__device__ __forceinline__ u32 bits(int value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"((float)value));
    return half;
}
#else
constexpr int PARTS = 4;
typedef int Sum;
#define SHAPE "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
#define SUM(x) "+r"(x)
__device__ __forceinline__ u32 bits(int value) { return value; }
#endif

// out: (digits, elements of A, lanes, registers of C). A block each; `one` is the element of A that
// is 1, by lane and then by part of a register; an element of B is a hexadecimal digit of its own
// number, and one more.
extern "C" __global__ void products(int *out, long long elements) {
    int lane = threadIdx.x, digit = blockIdx.x / (int)elements, one = blockIdx.x % (int)elements;
    u32 a[4] = {}, b[2] = {};
#pragma unroll
    for (int i = 0; i < 4 * PARTS; i++)
        if (one == lane * 4 * PARTS + i) a[i / PARTS] = bits(1) << i % PARTS * (32 / PARTS);
#pragma unroll
    for (int i = 0; i < 2 * PARTS; i++) {
        int number = lane * 2 * PARTS + i;
        b[i / PARTS] |= bits((number >> 4 * digit & 15) + 1) << i % PARTS * (32 / PARTS);
    }
    Sum d[4] = {};
    asm volatile(SHAPE " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[(blockIdx.x * 32 + lane) * 4 + i] = (int)d[i];
}

#define LOAD(what, from)                                                                        \
    asm volatile("wmma.load." what " {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"                      \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]),      \
                   "=r"(r[6]), "=r"(r[7])                                                       \
                 : "l"(from)                                                                    \
                 : "memory")

// halves, floats: 16 × 16 numbers. out: (A by rows, B by columns, C by rows; lanes, registers).
extern "C" __global__ void loads(const void *halves, const void *floats, u32 *out) {
    u32 r[8];
    for (int which = 0; which < 3; which++) {
        if (which == 0) LOAD("a.sync.aligned.row.m16n16k16.global.f16", halves);
        if (which == 1) LOAD("b.sync.aligned.col.m16n16k16.global.f16", halves);
        if (which == 2) {
            float f[8];
            asm volatile(
                "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "
                "[%8], 16;"
                : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3]), "=f"(f[4]), "=f"(f[5]),
                  "=f"(f[6]), "=f"(f[7])
                : "l"(floats)
                : "memory");
#pragma unroll
            for (int i = 0; i < 8; i++) r[i] = __float_as_uint(f[i]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) out[(which * 32 + threadIdx.x) * 8 + i] = r[i];
    }
}
