// mma.sync and fma, by the definitions
//   SHAPE     "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", or "fma.rn.f32"
//   FORM      0: four words of A, two of B, four sums; 1: two, one, four; 2: doubles, one, one, two;
//             3: doubles, eight, four, four; 4: fma of floats; 5: fma of doubles
//   INTEGERS  1: sums are INT32
//   KEEP, SET bits that random words keep, and that are set in them: floats between 1/8 and 1/4
//   THREADS   of a block
//   SUMS      of forms 4 and 5: accumulators that take turns. Three operands are more than the two
//             banks of registers give in time, so that a chain on its own halves the rate; between
//             independent sums the compiler keeps a and b (`.reuse`), and only d is read.

#include "clock.cuh"
#include "operands.cuh"

#if INTEGERS
typedef int Sum;
#define SUM(x) "+r"(x)
#else
typedef float Sum;
#define SUM(x) "+f"(x)
#endif

#if FORM < 2
struct State {
    u32 a[4], b[2];
    Sum d[4];
};
__device__ __forceinline__ void start(State &s, u32 *, u32 *place) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s.a[i] = loaded(random_word(threadIdx.x * 8 + i), place);
        s.b[i & 1] = loaded(random_word(threadIdx.x * 8 + i + 4), place);
        s.d[i] = 0;
    }
}
__device__ __forceinline__ void step(State &s, int) {
#if FORM == 0
    asm volatile(SHAPE " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : SUM(s.d[0]), SUM(s.d[1]), SUM(s.d[2]), SUM(s.d[3])
                 : "r"(s.a[0]), "r"(s.a[1]), "r"(s.a[2]), "r"(s.a[3]), "r"(s.b[0]), "r"(s.b[1]));
#else
    asm volatile(SHAPE " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : SUM(s.d[0]), SUM(s.d[1]), SUM(s.d[2]), SUM(s.d[3])
                 : "r"(s.a[0]), "r"(s.a[1]), "r"(s.b[0]));
#endif
}
#elif FORM < 4
constexpr int A = FORM == 2 ? 1 : 8, B = FORM == 2 ? 1 : 4, D = FORM == 2 ? 2 : 4;
struct State {
    double a[A], b[B], d[D];
};
__device__ __forceinline__ void start(State &s, u32 *, u32 *place) {
#pragma unroll
    for (int i = 0; i < A; i++) s.a[i] = loaded(random_double(threadIdx.x * 12 + i), place);
#pragma unroll
    for (int i = 0; i < B; i++) s.b[i] = loaded(random_double(threadIdx.x * 12 + 8 + i), place);
#pragma unroll
    for (int i = 0; i < D; i++) s.d[i] = 0;
}
__device__ __forceinline__ void step(State &s, int) {
#if FORM == 2
    asm volatile(SHAPE " {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(s.d[0]), "+d"(s.d[1])
                 : "d"(s.a[0]), "d"(s.b[0]));
#else
    asm volatile(
        SHAPE " {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
        : "+d"(s.d[0]), "+d"(s.d[1]), "+d"(s.d[2]), "+d"(s.d[3])
        : "d"(s.a[0]), "d"(s.a[1]), "d"(s.a[2]), "d"(s.a[3]), "d"(s.a[4]), "d"(s.a[5]),
          "d"(s.a[6]), "d"(s.a[7]), "d"(s.b[0]), "d"(s.b[1]), "d"(s.b[2]), "d"(s.b[3]));
#endif
}
#else
#if FORM == 4
typedef float Number;
#define NUMBER(x) "+f"(x)
#define OPERAND(x) "f"(x)
#else
typedef double Number;
#define NUMBER(x) "+d"(x)
#define OPERAND(x) "d"(x)
#endif
struct State {
    Number a, b, d[SUMS];
};
__device__ __forceinline__ void start(State &s, u32 *, u32 *place) {
    s.a = loaded(random_double(2 * threadIdx.x), place);
    s.b = loaded(random_double(2 * threadIdx.x + 1), place);
#pragma unroll
    for (int i = 0; i < SUMS; i++) s.d[i] = loaded((double)i, place);  // unlike, so none is spared
}
__device__ __forceinline__ void step(State &s, int j) {
    Number &d = s.d[j % SUMS];
    asm volatile(SHAPE " %0, %1, %2, %0;" : NUMBER(d) : OPERAND(s.a), OPERAND(s.b));
}
#endif

__device__ __forceinline__ void begin() {}
__device__ __forceinline__ void end() {}
#if FORM < 4
__device__ __forceinline__ u32 result(State &s) { return bits_of(s.d[0]); }
#else
__device__ __forceinline__ u32 result(State &s) {
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < SUMS; i++) all ^= bits_of(s.d[i]);
    return all;
}
#endif

#include "timing.cuh"
