// Enough of CUDA C++ to run kernels on the host: the threads of a block are threads, and blocks run
// one after the other. Shared memory is static, warps meet at barriers of their own.

#include <barrier>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

using std::max;
using std::min;

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)

struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct float2 {
    float x, y;
};
struct double2 {
    double x, y;
};
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static double2 make_double2(double x, double y) { return {x, y}; }

struct Dimension {
    unsigned x;
};
static thread_local Dimension threadIdx, blockIdx, blockDim;
static std::vector<unsigned char> dynamic_shared;

struct Warp {
    std::barrier<> barrier;
    double numbers[32];
    unsigned words[32];
    explicit Warp(int lanes) : barrier(lanes) {}
};
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<Warp>> warps;

static void __syncthreads() { block_barrier->arrive_and_wait(); }

static unsigned __reduce_add_sync(unsigned, unsigned word) {
    Warp &warp = *warps[threadIdx.x / 32];
    warp.words[threadIdx.x % 32] = word;
    warp.barrier.arrive_and_wait();
    unsigned sum = 0;
    for (unsigned other : warp.words) sum += other;
    warp.barrier.arrive_and_wait();
    return sum;
}
static unsigned __reduce_max_sync(unsigned, unsigned word) {
    Warp &warp = *warps[threadIdx.x / 32];
    warp.words[threadIdx.x % 32] = word;
    warp.barrier.arrive_and_wait();
    unsigned largest = 0;
    for (unsigned other : warp.words) largest = max(largest, other);
    warp.barrier.arrive_and_wait();
    return largest;
}
static double __shfl_xor_sync(unsigned, double number, int apart) {
    Warp &warp = *warps[threadIdx.x / 32];
    warp.numbers[threadIdx.x % 32] = number;
    warp.barrier.arrive_and_wait();
    double found = warp.numbers[threadIdx.x % 32 ^ apart];
    warp.barrier.arrive_and_wait();
    return found;
}

template <typename To, typename From> static To bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    memcpy(&to, &from, sizeof to);
    return to;
}
static int __double2hiint(double x) { return (int)(bits<uint64_t>(x) >> 32); }
static int __double2loint(double x) { return (int)bits<uint64_t>(x); }
static double __hiloint2double(int high, int low) {
    return bits<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}
static double __longlong_as_double(long long x) { return bits<double>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static float __int_as_float(int x) { return bits<float>(x); }
static int __float_as_int(float x) { return bits<int>(x); }
static int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    uint64_t both = (uint64_t)y << 32 | x;
    unsigned found = 0;
    for (int i = 0; i < 4; i++)
        found |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return found;
}
template <typename T> static T __ldg(const T *from) { return *from; }

static double rounded_up(double (*f)(volatile double, volatile double), double x, double y) {
    fesetround(FE_UPWARD);
    volatile double found = f(x, y);
    fesetround(FE_TONEAREST);
    return found;
}
static double product_of(volatile double x, volatile double y) { return x * y; }
static double sum_of(volatile double x, volatile double y) { return x + y; }
static double __dmul_ru(double x, double y) { return rounded_up(product_of, x, y); }
static double __dadd_ru(double x, double y) { return rounded_up(sum_of, x, y); }
static double __dmul_rn(double x, double y) { return x * y; }
static double __dadd_rn(double x, double y) { return x + y; }
static double __ddiv_rn(double x, double y) { return x / y; }
static void atomicMin(unsigned long long *place, unsigned long long word) {
    static std::mutex one;
    std::lock_guard<std::mutex> alone(one);
    if (word < *place) *place = word;
}
static double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

static int dp4a(unsigned bytes, unsigned weights, int sum) {  // dp4a.u32.s32
    for (int i = 0; i < 4; i++)
        sum += (int)(bytes >> 8 * i & 255) * (int)(int8_t)(weights >> 8 * i & 255);
    return sum;
}

template <typename Kernel, typename... Arguments>
static void launch(int grid, int threads, int shared, Kernel kernel, Arguments... arguments) {
    dynamic_shared.assign(shared + 1, 0xff);
    block_barrier = std::make_unique<std::barrier<>>(threads);
    warps.clear();
    for (int i = 0; i < threads; i += 32) warps.push_back(std::make_unique<Warp>(32));
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back([=] {
            threadIdx.x = i, blockDim.x = threads;
            for (int block = 0; block < grid; block++) {
                blockIdx.x = block;
                kernel(arguments...);
                __syncthreads();  // before shared memory is another block's
            }
        });
    for (auto &one : all) one.join();
}
