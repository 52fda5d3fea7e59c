// Enough of CUDA C++ to run kernels on the host. Blocks run one after the other, and the warps of a
// block: each until it waits for the block, first to last, then last to first. So do the threads of a
// warp until they wait for it: what relies on an order fails. Shared memory is static.

#include <ucontext.h>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
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
#define __align__(n) __attribute__((aligned(n)))

struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct char2 {
    signed char x, y;
};
struct short2 {
    short x, y;
};
struct int2 {
    int x, y;
};
struct longlong2 {
    long long x, y;
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
static Dimension threadIdx, blockIdx, blockDim, gridDim;
static std::vector<unsigned char> dynamic_shared;

enum State { RUNS, WAITS_FOR_WARP, WAITS_FOR_BLOCK, WAITS_AT_BARRIER, HAS_ENDED };
constexpr size_t STACK = 256 * 1024;  // bytes
struct Copy {
    unsigned to;
    const void *from;
};
struct Thread {
    std::unique_ptr<char[]> stack{new char[STACK]};
    ucontext_t context;
    State state;
    std::vector<std::vector<Copy>> groups;  // of copies under way; the last is still open
};
static std::vector<Thread> all_threads;
static ucontext_t turns;
static std::function<void()> work;

static void wait_for(State state) {
    Thread &thread = all_threads[threadIdx.x];
    thread.state = state;
    swapcontext(&thread.context, &turns);
}

static void one_thread() {
    work();
    wait_for(HAS_ENDED);
}

struct Warp {
    double numbers[32];
    unsigned words[32];
    unsigned a[32][4], b[32][2];
};
static std::vector<Warp> warps;

static void __syncthreads() { wait_for(WAITS_FOR_BLOCK); }
static int __syncthreads_or(int mine) {
    static int any;
    __syncthreads();
    any = 0;
    __syncthreads();
    any |= mine;
    __syncthreads();
    return any;
}
static void wait_for_warp() { wait_for(WAITS_FOR_WARP); }

// Lets threads from first to last run on if none of them is elsewhere. Whether there are any.
static bool released(int first, int last, State waiting) {
    bool any = false;
    for (int i = first; i < last; i++) {
        const State state = all_threads[i].state;
        if (state != waiting && state != HAS_ENDED) return false;
        any |= state == waiting;
    }
    for (int i = first; any && i < last; i++)
        if (all_threads[i].state == waiting) all_threads[i].state = RUNS;
    return any;
}

static unsigned __reduce_add_sync(unsigned, unsigned word) {
    Warp &warp = warps[threadIdx.x / 32];
    warp.words[threadIdx.x % 32] = word;
    wait_for_warp();
    unsigned sum = 0;
    for (unsigned other : warp.words) sum += other;
    wait_for_warp();
    return sum;
}
static unsigned __reduce_max_sync(unsigned, unsigned word) {
    Warp &warp = warps[threadIdx.x / 32];
    warp.words[threadIdx.x % 32] = word;
    wait_for_warp();
    unsigned largest = 0;
    for (unsigned other : warp.words) largest = max(largest, other);
    wait_for_warp();
    return largest;
}
static unsigned __reduce_or_sync(unsigned, unsigned word) {
    Warp &warp = warps[threadIdx.x / 32];
    warp.words[threadIdx.x % 32] = word;
    wait_for_warp();
    unsigned all = 0;
    for (unsigned other : warp.words) all |= other;
    wait_for_warp();
    return all;
}
static double __shfl_xor_sync(unsigned, double number, int apart) {
    Warp &warp = warps[threadIdx.x / 32];
    warp.numbers[threadIdx.x % 32] = number;
    wait_for_warp();
    double found = warp.numbers[threadIdx.x % 32 ^ apart];
    wait_for_warp();
    return found;
}

static int __shfl_sync(unsigned, int number, int from) {
    Warp &warp = warps[threadIdx.x / 32];
    warp.words[threadIdx.x % 32] = (unsigned)number;
    wait_for_warp();
    const int found = (int)warp.words[from];
    wait_for_warp();
    return found;
}

// Barriers of Hopper's, by their addresses: a phase ends with its last arrival and its last byte.
struct Barrier {
    int arrivals, pending, bytes, phase;
};
static std::map<unsigned, Barrier> barriers_at;
static bool any_arrived;  // since threads were last let on
static void make_barrier(unsigned barrier, int arrivals) {
    barriers_at[barrier] = {arrivals, arrivals, 0, 0};
}
static void arrive_at(unsigned barrier, int arrivals, int bytes) {
    Barrier &one = barriers_at.at(barrier);
    one.pending -= arrivals, one.bytes += bytes, any_arrived = true;
    if (one.pending == 0 && one.bytes == 0) one.pending = one.arrivals, one.phase ^= 1;
}
static void wait_at(unsigned barrier, int parity) {
    while (barriers_at.at(barrier).phase == parity) wait_for(WAITS_AT_BARRIER);
}
static void copy_bulk(unsigned to, const void *from, int bytes, unsigned barrier) {
    memcpy(&dynamic_shared.at(to), from, bytes);
    arrive_at(barrier, 0, -bytes);
}
// wgmma of 64 rows and 32 bytes of K, of signed bytes that lie in 64-byte rows, swizzled. Each thread
// makes its own sums: in each 8 columns two neighbours of a row, then of the row 8 below.
static void multiply_in_group(int *sum, int count, unsigned a, unsigned b) {
    const int thread = threadIdx.x % 128;
    const unsigned half = a / 32 % 2;
    auto byte = [&](unsigned from, int row, int k) {
        const unsigned chunk = (half * 2 + k / 16) ^ (row >> 1 & 3);
        return (int)(int8_t)dynamic_shared.at(from / 64 * 64 + row * 64 + chunk * 16 + k % 16);
    };
    for (int i = 0; i < count; i++) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
        const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
        for (int k = 0; k < 32; k++)
            sum[i] = (int)((unsigned)sum[i] + (unsigned)(byte(a, row, k) * byte(b, column, k)));
    }
}

// Copies of 16 bytes into dynamic shared memory, which arrive as late as they may.
static void copy_async(unsigned to, const void *from) {
    all_threads[threadIdx.x].groups.back().push_back({to, from});
}
static void commit_copies() { all_threads[threadIdx.x].groups.emplace_back(); }
static void wait_for_copies(unsigned pending) {
    auto &groups = all_threads[threadIdx.x].groups;
    while (groups.size() > pending + 1) {
        for (const Copy &copy : groups.front())
            memcpy(&dynamic_shared.at(copy.to), copy.from, 16);
        groups.erase(groups.begin());
    }
}

// ldmatrix.m8n8.x4: lane l has the address of row l % 8 of matrix l / 8.
static void load_four(unsigned (&to)[4], unsigned from) {
    Warp &warp = warps[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    warp.words[lane] = from;
    wait_for_warp();
    for (int i = 0; i < 4; i++)
        memcpy(&to[i], &dynamic_shared.at(warp.words[8 * i + lane / 4] + lane % 4 * 4), 4);
    wait_for_warp();
}

static int byte_at(unsigned word, int place, const char *type) {
    const unsigned byte = word >> 8 * place & 255;
    return type[0] == 's' ? (int8_t)byte : (int)byte;
}
// mma.m16n8k32 of bytes: row r of A lies in lanes 4 r % 32 to 4 r % 32 + 3, words r / 8 and, of the
// other half of K, r / 8 + 2; column c of B in lanes 4 c to 4 c + 3.
static void multiply_in_warp(int *sum, const unsigned (&a)[4], const unsigned *b, const char *of_a,
                             const char *of_b) {
    Warp &warp = warps[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    memcpy(warp.a[lane], a, sizeof a);
    memcpy(warp.b[lane], b, 2 * sizeof *b);
    wait_for_warp();
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        unsigned total = sum[i];  // it wraps
        for (int k = 0; k < 32; k++) {
            const unsigned x = warp.a[row % 8 * 4 + k % 16 / 4][row / 8 + k / 16 * 2];
            const unsigned y = warp.b[column * 4 + k % 16 / 4][k / 16];
            total += (unsigned)(byte_at(x, k % 4, of_a) * byte_at(y, k % 4, of_b));
        }
        sum[i] = (int)total;
    }
    wait_for_warp();
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
static int __popc(unsigned x) { return __builtin_popcount(x); }
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
    if (word < *place) *place = word;
}
static void atomicMax(unsigned *place, unsigned word) { *place = max(*place, word); }
static void atomicAdd(double *place, double number) { *place += number; }
static void atomicMax(int *place, int word) { *place = max(*place, word); }
static void atomicAdd(unsigned long long *place, unsigned long long word) { *place += word; }
static double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

static int dp4a(unsigned bytes, unsigned weights, int sum) {  // dp4a.u32.s32
    for (int i = 0; i < 4; i++)
        sum += (int)(bytes >> 8 * i & 255) * (int)(int8_t)(weights >> 8 * i & 255);
    return sum;
}

// Until each of its threads waits for the block, or has ended.
static void run_warp(int first, int last, int round) {
    do {
        for (int turn = 0; turn < last - first; turn++) {
            threadIdx.x = round % 2 ? last - 1 - turn : first + turn;
            Thread &thread = all_threads[threadIdx.x];
            if (thread.state == RUNS) swapcontext(&turns, &thread.context);
        }
        round++;
    } while (released(first, last, WAITS_FOR_WARP));
}

// Lets threads that wait run on: for the block if all do, or at barriers if anything has arrived.
static bool goes_on(int threads) {
    bool any = released(0, threads, WAITS_FOR_BLOCK);
    for (int i = 0; any_arrived && i < threads; i++)
        if (all_threads[i].state == WAITS_AT_BARRIER) all_threads[i].state = RUNS, any = true;
    any_arrived = false;
    return any;
}

template <typename Kernel, typename... Arguments>
static void launch(int grid, int threads, int shared, Kernel kernel, Arguments... arguments) {
    dynamic_shared.assign(shared + 1, 0xff);
    if (all_threads.size() < (size_t)threads) all_threads.resize(threads);
    warps.resize((threads + 31) / 32);
    blockDim.x = threads;
    gridDim.x = grid;
    work = [=] { kernel(arguments...); };
    for (int block = 0; block < grid; block++) {
        blockIdx.x = block;
        for (int i = 0; i < threads; i++) {
            Thread &thread = all_threads[i];
            getcontext(&thread.context);
            thread.context.uc_stack = {thread.stack.get(), 0, STACK};
            makecontext(&thread.context, one_thread, 0);
            thread.state = RUNS;
            thread.groups.assign(1, {});
        }
        bool any = true;
        for (int round = block; any; any = goes_on(threads), round++) {
            for (int i = 0; i < threads; i += 32) {
                const int first = round % 2 ? (threads - 1 - i) / 32 * 32 : i;
                run_warp(first, min(first + 32, threads), round);
            }
        }
        for (int i = 0; i < threads; i++)
            if (all_threads[i].state != HAS_ENDED) {
                fprintf(stderr, "thread %d of block %d waits for ever\n", i, block);
                abort();
            }
    }
}
