// An operand as residues: each row of A, or column of B, times a power of two, rounded to integers,
// modulo p_1 … p_COUNT. See `schemes/residues.py`. "Rows" below means either.
//
// out: (padded rows / 64, SLICES, steps, 64, 64) bytes: of 64 rows a slice lies together, step by step.
// Of each row's 64 bytes of a step the four chunks of 16 are at c ^ (row >> 1 & 3): the 64-byte swizzle
// of wgmma. What is past K is 0, what is past the rows holds anything.
//
// A complex row is scaled, and recorded, as one of twice as many real numbers. It has two slices for
// each modulus, re + s im and re − s im, where s² ≡ −1 modulo p.
//
// `rows`: K is contiguous. A block takes a row's largest entry, its norm and its residues from shared
// memory, or, of what does not fit there, from the L2 cache.
//
// `maxima`, `sums`, `columns`: any strides, in three launches; blocks take 32 rows, and a chunk of K.
//
// `integers`: entries as they are, which have to be integers, any strides, in one launch. Whether
// they are, and between which, is recorded.
//
// `look`: records some rows of both operands, or all, before they are packed.
//
// `judge`: says whether COUNT moduli are enough for the operands of two records.

// Of integers: what is added before higher digits of base 256 are taken, so that these are as they
// are beside lower ones from −128 on (128), or from 0 on (0). Residues are taken where there is none.
#ifndef DIGIT_OFFSET
#define DIGIT_OFFSET -1
#endif

#include "residues.cuh"
#include "values.cuh"

constexpr int SLICES = REALS * COUNT;
constexpr int NUMBERS = 8;                 // that a thread takes at a time, an item
constexpr int ITEM = NUMBERS / REALS;      // entries of it
constexpr int ITEMS = STEP / ITEM;         // of a step
constexpr int VECTOR = 16 / sizeof(Value);  // numbers of a load

__device__ __forceinline__ double wide(double x) { return x; }
__device__ __forceinline__ double wide(float x) {  // subnormal ones, too
    double found;
    asm("cvt.f64.f32 %0, %1;" : "=d"(found) : "f"(x));
    return found;
}

// Entry number i of a row. A complex one is as aligned as it is large.
__device__ __forceinline__ void load(const Value *row, long long i, double (&x)[REALS]) {
#if COMPLEX
    const Pair both = __ldg((const Pair *)row + i);
    x[0] = wide(both.x), x[1] = wide(both.y);
#else
    x[0] = wide(__ldg(row + i));
#endif
}

constexpr int TOP = SINGLE ? 127 : 1023;  // the largest exponent

// LARGE: elements of C may overflow.
__device__ __forceinline__ unsigned char flag_of(const Largest &largest, long long k) {
    if (!largest.scaled()) return largest.finite() ? 0 : NONFINITE;
    return 2 * largest.exponent() + 32 - __clz((u32)k) > TOP ? LARGE : 0;
}

struct Target {
    unsigned char *out;
    long long steps;

    // Where an item of a row lies, in the first slice; to the next slice it is `stride` bytes.
    __device__ __forceinline__ unsigned char *at(int row, int item) const {
        const int byte = item % ITEMS * ITEM, chunk = byte / 16 ^ (row >> 1 & 3);
        const long long place = row / 64 * SLICES * steps + item / ITEMS;
        return out + (place * 64 + row % 64) * STEP + chunk * 16 + byte % 16;
    }
    __device__ __forceinline__ long long stride() const { return steps * 64 * STEP; }
};

__device__ __forceinline__ u32 four_bytes(u32 a, u32 b, u32 c, u32 d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

#if COMPLEX
typedef u32 Stored;
#else
typedef uint2 Stored;
#endif

__device__ __forceinline__ void store(unsigned char *to, const u32 (&byte)[ITEM]) {
    Stored word;
#pragma unroll
    for (int i = 0; i < ITEM; i += 4)
        ((u32 *)&word)[i / 4] = four_bytes(byte[i], byte[i + 1], byte[i + 2], byte[i + 3]);
    *(Stored *)to = word;
}

#if COMPLEX

__device__ __forceinline__ void cut(const double (&x)[NUMBERS], const Scale &scale, unsigned char *to,
                                    long long stride) {
    u32 re[ITEM][WORDS], im[ITEM][WORDS];
#pragma unroll
    for (int e = 0; e < ITEM; e++) scale(x[2 * e], re[e]), scale(x[2 * e + 1], im[e]);
    each<COUNT>([&](auto index) {
        constexpr int p = modulus(decltype(index)::value);
        u32 plus[ITEM], minus[ITEM];
#pragma unroll
        for (int e = 0; e < ITEM; e++) residues<p>(re[e], im[e], plus[e], minus[e]);
        store(to, plus);
        store(to + stride, minus);
        to += 2 * stride;
    });
}

#else

__device__ __forceinline__ void cut(const double (&x)[NUMBERS], const Scale &scale, unsigned char *to,
                                    long long stride) {
    u32 word[ITEM][WORDS];
#pragma unroll
    for (int e = 0; e < ITEM; e++) scale(x[e], word[e]);
    each<COUNT>([&](auto index) {
        constexpr int l = decltype(index)::value, p = modulus(l);
        u32 byte[ITEM];
#pragma unroll
        for (int e = 0; e < ITEM; e++)
            byte[e] = DIGIT_OFFSET < 0 || l == 0 ? residue<p>(word[e])
                                                 : word[e][0] + (u32)DIGIT_OFFSET >> 8 * l;
        store(to, byte);
        to += stride;
    });
}

#endif

__device__ __forceinline__ void clear(unsigned char *to, long long stride) {
    for (int i = 0; i < SLICES; i++, to += stride) *(Stored *)to = Stored();
}

// ---- rows that are contiguous along K --------------------------------------------------------------

constexpr int MOST_WARPS = 32;

__device__ __forceinline__ Largest block_largest(Largest mine, u32 (&high)[MOST_WARPS],
                                                 u32 (&low)[MOST_WARPS]) {
    mine.high = __reduce_max_sync(~0u, mine.high);
    mine.low = __reduce_max_sync(~0u, mine.low);
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) high[warp] = mine.high, low[warp] = mine.low;
    __syncthreads();
    mine.high = __reduce_max_sync(~0u, lane < warps ? high[lane] : 0);
    mine.low = __reduce_max_sync(~0u, lane < warps ? low[lane] : 0);
    return mine;
}

__device__ __forceinline__ double warp_sum(double x) {  // of integers: exact in any order
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) x += __shfl_xor_sync(~0u, x, apart);
    return x;
}

extern "C" __global__ void __launch_bounds__(1024)
rows(const Value *x, unsigned char *out, int *scales, unsigned char *flags, long long row_count,
     long long k, long long row_stride, long long steps, long long vectors, long long limit,
     long long held_items, u64 *record) {
    extern __shared__ __align__(16) double2 held[];  // of item i of a thread, (i, NUMBERS / 2, threads)
    __shared__ u32 high[MOST_WARPS], low[MOST_WARPS];
    __shared__ double sums[MOST_WARPS];
    __shared__ u32 plain_sums[MOST_WARPS], clipped_sums[MOST_WARPS];  // these three where RECORD
    __shared__ double clipped_squares[MOST_WARPS];
    Dense dense;
    const int row = blockIdx.x, thread = threadIdx.x, threads = blockDim.x;
    const int items = (int)steps * ITEMS;
    const Target target = {out, steps};
    follow();
    x += row * row_stride * REALS;
    k *= REALS;
    Largest largest;
    auto read = [&](int item, double(&entry)[NUMBERS]) {
        const Value *from = x + item * NUMBERS;
        if (vectors && (item + 1) * NUMBERS <= k) {
            Value raw[NUMBERS];
#pragma unroll
            for (int i = 0; i < NUMBERS; i += VECTOR)
                *(uint4 *)(raw + i) = __ldg((const uint4 *)(from + i));
#pragma unroll
            for (int i = 0; i < NUMBERS; i++) entry[i] = wide(raw[i]);
        } else {
#pragma unroll
            for (int i = 0; i < NUMBERS; i++) entry[i] = item * NUMBERS + i < k ? wide(from[i]) : 0;
        }
    };
    // Hands on the entries of all items of this thread.
    auto again = [&](auto take) {
        const double2 *mine = held + thread;
        for (int item = thread; item < items; item += threads) {
            double entry[NUMBERS];
            if (item < held_items) {
#pragma unroll
                for (int i = 0; i < NUMBERS; i += 2, mine += threads)
                    entry[i] = mine->x, entry[i + 1] = mine->y;
            } else {
                read(item, entry);
            }
            take(item, entry);
        }
    };
    double2 *mine = held + thread;
    for (int item = thread; item < items; item += threads) {
        double entry[NUMBERS];
        read(item, entry);
#pragma unroll
        for (int i = 0; i < NUMBERS; i++) largest.take(entry[i]);
        if (item >= held_items) continue;
#pragma unroll
        for (int i = 0; i < NUMBERS; i += 2, mine += threads) *mine = make_double2(entry[i], entry[i + 1]);
    }
    largest = block_largest(largest, high, low);
    if (!largest.scaled()) {
        if (thread == 0) scales[row] = 0, flags[row] = flag_of(largest, k);
        if (RECORD && thread == 0 && !largest.finite()) record_unfit(record);
        for (int item = thread; item < items; item += threads)
            clear(target.at(row, item), target.stride());
        return;
    }
    const int exponent = largest.exponent();
    const Square square(exponent);
    double sum = 0;
    again([&](int, const double(&entry)[NUMBERS]) {
#pragma unroll
        for (int i = 0; i < NUMBERS; i++) sum += dense.take(entry[i], square);
    });
    sum = warp_sum(sum);
    if (thread % 32 == 0) sums[thread / 32] = sum;
    if (RECORD) {
        dense.sum = __reduce_add_sync(~0u, dense.sum);
        dense.clipped = __reduce_add_sync(~0u, dense.clipped);
        const double clipped_square = warp_sum(dense.squares);
        if (thread % 32 == 0) {
            plain_sums[thread / 32] = dense.sum;
            clipped_sums[thread / 32] = dense.clipped;
            clipped_squares[thread / 32] = clipped_square;
        }
    }
    __syncthreads();
    sum = warp_sum(thread % 32 < threads / 32 ? sums[thread % 32] : 0);
    if (RECORD) {
        if (thread == 0) {
            double plain = 0, clipped = 0, squares = 0;
            for (int i = 0; i < threads / 32; i++) {
                plain += plain_sums[i];
                clipped += clipped_sums[i];
                squares += clipped_squares[i];
            }
            record_row(record, (double)k, plain, clipped, squares, sum);
        }
        Bounds bounds;
        if (!COMPLEX && largest.may_be_small_integers()) {
            again([&](int, const double(&entry)[NUMBERS]) {
#pragma unroll
                for (int i = 0; i < ITEM; i++) bounds.take(entry[i]);
            });
        } else {
            bounds.fail();
        }
        bounds.record_warp(record);
    }
    const int found = scale_of(exponent, sum, __longlong_as_double(limit));
    if (thread == 0) scales[row] = found, flags[row] = flag_of(largest, k);
    const Scale scale(found);
    again([&](int item, const double(&entry)[NUMBERS]) {
        cut(entry, scale, target.at(row, item), target.stride());
    });
}

// ---- any strides -----------------------------------------------------------------------------------

constexpr int PANEL = 32, ACROSS = 8;  // rows of a block, and threads along K

// A block's rows and its chunk of K, in steps. Panels of one chunk are side by side.
struct Part {
    int row, chunk, begin, end;

    // backwards: begins with what the launch before has read last, which is still in the L2 cache.
    __device__ __forceinline__ Part(long long rows, long long steps, long long chunk_steps,
                                    bool backwards = false) {
        const int panels = (int)((rows + PANEL - 1) / PANEL);
        const int index = backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
        chunk = index / panels;
        row = (index - chunk * panels) * PANEL;
        begin = chunk * (int)chunk_steps;
        end = min(begin + (int)chunk_steps, (int)steps);
    }
};

// largest: (chunks, rows) pairs of words.
extern "C" __global__ void __launch_bounds__(PANEL *ACROSS)
maxima(const Value *x, uint2 *largest, long long row_count, long long k, long long row_stride,
       long long k_stride, long long steps, long long chunk_steps) {
    __shared__ uint2 words[ACROSS][PANEL];
    const Part part(row_count, steps, chunk_steps);
    const int lane = threadIdx.x % PANEL, across = threadIdx.x / PANEL, row = part.row + lane;
    const int end = min(part.end * STEP, (int)k);
    follow();
    Largest mine;
    if (row < row_count) {
        const Value *from = x + row * row_stride * REALS;
#pragma unroll 8
        for (int i = part.begin * STEP + across; i < end; i += ACROSS) {
            double entry[REALS];
            load(from, i * k_stride, entry);
#pragma unroll
            for (int j = 0; j < REALS; j++) mine.take(entry[j]);
        }
    }
    words[across][lane] = make_uint2(mine.high, mine.low);
    __syncthreads();
    if (across || row >= row_count) return;
#pragma unroll
    for (int i = 1; i < ACROSS; i++) mine.take({words[i][lane].x, words[i][lane].y});
    largest[part.chunk * row_count + row] = make_uint2(mine.high, mine.low);
}

__device__ __forceinline__ Largest of_all(const uint2 *largest, long long chunks, long long rows,
                                          int row) {
    Largest all;
    for (int i = 0; i < chunks; i++) {
        const uint2 words = largest[i * rows + row];
        all.take({words.x, words.y});
    }
    return all;
}

// squares: (chunks, rows) sums; behind them the three of `Dense`, each (chunks, rows) words.
extern "C" __global__ void __launch_bounds__(PANEL *ACROSS)
sums(const Value *x, const uint2 *largest, double *squares, long long row_count, long long k,
     long long row_stride, long long k_stride, long long steps, long long chunk_steps,
     long long chunks, u64 *record) {
    __shared__ double found[ACROSS][PANEL];
    __shared__ u32 words[3][ACROSS][PANEL];  // where RECORD
    Dense dense;
    const Part part(row_count, steps, chunk_steps, true);
    const int lane = threadIdx.x % PANEL, across = threadIdx.x / PANEL, row = part.row + lane;
    const int end = min(part.end * STEP, (int)k);
    follow();
    double sum = 0;
    if (row < row_count) {
        const Largest all = of_all(largest, chunks, row_count, row);
        const Value *from = x + row * row_stride * REALS;
        if (all.scaled()) {
            const Square square(all.exponent());
#pragma unroll 8
            for (int i = part.begin * STEP + across; i < end; i += ACROSS) {
                double entry[REALS];
                load(from, i * k_stride, entry);
#pragma unroll
                for (int j = 0; j < REALS; j++) sum += dense.take(entry[j], square);
            }
        }
    }
    found[across][lane] = sum;
    if (RECORD) {
        Bounds bounds;
        if (row < row_count) {
            const Largest all = of_all(largest, chunks, row_count, row);
            if (!COMPLEX && all.may_be_small_integers()) {
                const Value *from = x + row * row_stride;
#pragma unroll 8
                for (int i = part.begin * STEP + across; i < end; i += ACROSS)
                    bounds.take(wide(__ldg(from + i * k_stride)));
            } else {
                bounds.fail();
            }
        }
        bounds.record_warp(record);
        words[0][across][lane] = dense.sum;
        words[1][across][lane] = dense.clipped;
        words[2][across][lane] = dense.squares;
    }
    __syncthreads();
    if (across || row >= row_count) return;
#pragma unroll
    for (int i = 1; i < ACROSS; i++) sum += found[i][lane];
    squares[part.chunk * row_count + row] = sum;
    const long long whole = chunks * row_count;
    for (int j = 0; RECORD && j < 3; j++) {
        u32 all = 0;
        for (int i = 0; i < ACROSS; i++) all += words[j][i][lane];
        ((u32 *)(squares + whole))[j * whole + part.chunk * row_count + row] = all;
    }
}

// A warp takes so many items of each of its rows that 32 bytes of what it writes lie together.
extern "C" __global__ void __launch_bounds__(PANEL *ACROSS)
columns(const Value *x, const uint2 *largest, const double *squares, unsigned char *out, int *scales,
        unsigned char *flags, long long row_count, long long k, long long row_stride,
        long long k_stride, long long steps, long long chunk_steps,
        long long chunks, long long limit, u64 *record) {
    constexpr int NONE = 1 << 30;
    __shared__ int of_rows[PANEL];
    const Part part(row_count, steps, chunk_steps);
    const Target target = {out, steps};
    follow();
    if (threadIdx.x < PANEL && part.row + threadIdx.x < row_count) {
        const int row = part.row + threadIdx.x;
        const Largest all = of_all(largest, chunks, row_count, row);
        int scale = NONE;
        if (all.scaled()) {
            double sum = 0;
            for (int i = 0; i < chunks; i++) sum += squares[i * row_count + row];
            scale = scale_of(all.exponent(), sum, __longlong_as_double(limit));
            if (RECORD && part.chunk == 0) {
                const long long whole = chunks * row_count;
                double of_row[3] = {0, 0, 0};
                for (int j = 0; j < 3; j++)
                    for (int i = 0; i < chunks; i++)
                        of_row[j] += ((const u32 *)(squares + whole))[j * whole + i * row_count + row];
                record_row(record, (double)(k * REALS), of_row[0], of_row[1], of_row[2], sum);
            }
        } else if (RECORD && !all.finite()) {
            record_unfit(record);
        }
        of_rows[threadIdx.x] = scale;
        if (part.chunk == 0) {
            scales[row] = scale == NONE ? 0 : scale;
            flags[row] = flag_of(all, k * REALS);
        }
    }
    __syncthreads();
    constexpr int OF_WARP = ITEM, WARPS = PANEL / OF_WARP;  // rows of a warp, and warps for all
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int mine = warp % WARPS * OF_WARP + lane % OF_WARP, row = part.row + mine;
    const int first = warp / WARPS * (32 / OF_WARP) + lane / OF_WARP;
    if (row >= row_count) return;
    const int found = of_rows[mine];
    x += row * row_stride * REALS;
    const Scale scale(found == NONE ? 0 : found);
    for (int item = part.begin * ITEMS + first; item < part.end * ITEMS; item += ACROSS) {
        unsigned char *to = target.at(row, item);
        if (found == NONE) {
            clear(to, target.stride());
            continue;
        }
        double entry[NUMBERS] = {};
        const int begin = item * ITEM;
#pragma unroll
        for (int i = 0; i < ITEM; i++)
            if (begin + i < k)
                load(x, (begin + i) * k_stride, *(double(*)[REALS])(entry + i * REALS));
        cut(entry, scale, to, target.stride());
    }
}

// ---- integers --------------------------------------------------------------------------------------

// along: whether K is contiguous; then a warp takes 32 items of a row, else 4 items of 8 rows.
extern "C" __global__ void __launch_bounds__(PANEL *ACROSS)
integers(const Value *x, unsigned char *out, int *scales, unsigned char *flags, long long row_count,
         long long k, long long row_stride, long long k_stride, long long steps,
         long long chunk_steps, long long along, long long vectors, u64 *record) {
#if !COMPLEX  // of these there are none
    const Part part(row_count, steps, chunk_steps);
    const Target target = {out, steps};
    follow();
    if (part.chunk == 0 && threadIdx.x < PANEL && part.row + threadIdx.x < row_count)
        scales[part.row + threadIdx.x] = 0, flags[part.row + threadIdx.x] = 0;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_row = along ? warp : warp % 4 * 8 + lane % 8, rows_apart = along ? ACROSS : PANEL;
    const int first = along ? lane : warp / 4 * 4 + lane / 8, items_apart = along ? 32 : ITEMS;
    const Scale scale(0);
    Bounds bounds;
    for (int row = part.row + first_row; row < part.row + PANEL && row < row_count; row += rows_apart) {
        const Value *from = x + row * row_stride;
        for (int item = part.begin * ITEMS + first; item < part.end * ITEMS; item += items_apart) {
            double entry[ITEM];
            const int begin = item * ITEM;
            if (vectors && begin + ITEM <= k) {
                Value raw[ITEM];
#pragma unroll
                for (int i = 0; i < ITEM; i += VECTOR)
                    *(uint4 *)(raw + i) = __ldg((const uint4 *)(from + begin + i));
#pragma unroll
                for (int i = 0; i < ITEM; i++) entry[i] = wide(raw[i]);
            } else {
#pragma unroll
                for (int i = 0; i < ITEM; i++)
                    entry[i] = begin + i < k ? wide(__ldg(from + (begin + i) * k_stride)) : 0;
            }
#pragma unroll
            for (int i = 0; i < ITEM; i++) bounds.take(entry[i]);
            cut(entry, scale, target.at(row, item), target.stride());
        }
    }
    bounds.record_warp(record);
#endif
}

// ---- what operands need ----------------------------------------------------------------------------

// `density` of `schemes/crt.py`.
__device__ __forceinline__ double density(const volatile double *left, const volatile double *right) {
    double best = 0;
    for (int i = 0; i < 4; i += 2)
        for (int j = 0; j < 4; j += 2) {
            const double agreement = fmin(left[i], 1.0), other = fmin(right[j], 1.0);
            const double share = fmin(left[i + 1], 1.0), its_share = fmin(right[j + 1], 1.0);
            if (!(agreement > 0 && other > 0)) continue;
            const double across = sqrt(__dmul_rn(1 / agreement - 1, 1 / other - 1));
            best = fmax(best, __dmul_rn(sqrt(__dmul_rn(share, its_share)), 1 - across));
        }
    return best;
}

constexpr int LOOKED_ROWS = 4, LOOKED_ALONG = 128;  // rows of a block, and threads of each

// take(entry) of a thread's entries of a row; several are loaded at a time. pairs: 1 if entries are
// complex; of these, each part is an entry here, and strides count these.
template <typename T, typename F>
__device__ __forceinline__ void each_entry(const T *x, long long i, long long end, long long k_stride,
                                           int pairs, F take) {
    constexpr int TOGETHER = 8;
    auto at = [&](long long place) { return wide(__ldg(x + (place >> pairs) * k_stride + (place & pairs))); };
    for (; i + (TOGETHER - 1) * LOOKED_ALONG < end; i += TOGETHER * LOOKED_ALONG) {
        double entry[TOGETHER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) entry[j] = at(i + j * LOOKED_ALONG);
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) take(entry[j]);
    }
    for (; i < end; i += LOOKED_ALONG) take(at(i));
}

// Blocks take the operands in turn, and `a_blocks` of them, spread evenly, rows of A; they return once
// the records say that no moduli are enough: where the density is below `least`, the bits of a double.
// Of a stack matrices of so many rows each lie `apart` entries from each other.
extern "C" __global__ void __launch_bounds__(LOOKED_ROWS *LOOKED_ALONG)
look(const void *a, long long a_rows, long long a_of_one, long long a_apart, long long a_row_stride,
     long long a_k_stride, long long a_single, u64 *a_record, const void *b, long long b_rows,
     long long b_of_one, long long b_apart, long long b_row_stride, long long b_k_stride,
     long long b_single, u64 *b_record, long long k, long long pairs, long long a_blocks, long long least) {
    __shared__ u32 high[LOOKED_ROWS], low[LOOKED_ROWS];
    __shared__ double found[LOOKED_ROWS][4];
    __shared__ bool ends;
    const long long b_blocks = gridDim.x - a_blocks, both = min(a_blocks, b_blocks), index = blockIdx.x;
    const bool is_a = index < 2 * both ? index % 2 == 0 : a_blocks > both;
    const long long place = index < 2 * both ? index / 2 : index - both;
    const long long rows = is_a ? a_rows : b_rows, blocks = is_a ? a_blocks : b_blocks;
    const long long panels = (rows + LOOKED_ROWS - 1) / LOOKED_ROWS;
    const long long row_stride = is_a ? a_row_stride : b_row_stride;
    const long long k_stride = is_a ? a_k_stride : b_k_stride, of_one = is_a ? a_of_one : b_of_one;
    const bool single = is_a ? a_single : b_single;
    u64 *record = is_a ? a_record : b_record;
    // Threads of a warp read along K where that is contiguous, else several rows.
    const int thread = threadIdx.x, lane = thread % 32;
    const bool along = k_stride == 1 + pairs;
    const int part = along ? thread / LOOKED_ALONG : thread % LOOKED_ROWS;
    const int start = along ? thread % LOOKED_ALONG : thread / LOOKED_ROWS;
    const long long row = place * (panels - 1) / max(blocks - 1, 1ll) * LOOKED_ROWS + part;
    const long long end = row < rows ? k : 0;
    const long long origin = row / of_one * (is_a ? a_apart : b_apart) + row % of_one * row_stride;
    auto each = [&](auto take) {
        const void *x = is_a ? a : b;
        if (single) each_entry((const float *)x + origin, start, end, k_stride, (int)pairs, take);
        else each_entry((const double *)x + origin, start, end, k_stride, (int)pairs, take);
    };
    if (thread < LOOKED_ROWS) {
        high[thread] = low[thread] = 0;
        for (int i = 0; i < 4; i++) found[thread][i] = 0;
    }
    follow();
    if (thread == 0)
        ends = density((double *)a_record, (double *)b_record) < __longlong_as_double(least);
    __syncthreads();
    if (ends) return;
    Largest largest;
    each([&](double entry) { largest.take(entry); });
    for (int apart = 16; apart >= LOOKED_ROWS; apart >>= 1) {
        largest.high = max(largest.high, (u32)__shfl_xor_sync(~0u, largest.high, apart));
        largest.low = max(largest.low, (u32)__shfl_xor_sync(~0u, largest.low, apart));
    }
    if (lane < LOOKED_ROWS) atomicMax(high + part, largest.high), atomicMax(low + part, largest.low);
    __syncthreads();
    largest.high = high[part], largest.low = low[part];
    const bool small = !pairs && largest.may_be_small_integers();
    Bounds bounds;
    double sums[4] = {0, 0, 0, 0};  // as of `record_row`
    if (largest.scaled()) {
        const Square square(largest.exponent());
        if (!small) bounds.fail();
        each([&](double entry) {
            const double y = __dadd_rn(square.steps(entry), -0x1p52), z = fmin(y, (double)CLIP);
            sums[0] += y, sums[1] += z, sums[2] += z * z, sums[3] += y * y;
            if (small) bounds.take(entry);
        });
    } else if (!largest.finite() && start == 0) {
        record_unfit(record);
    }
    bounds.record_warp(record);
    for (int i = 0; i < 4; i++) {
        for (int apart = 16; apart >= LOOKED_ROWS; apart >>= 1)
            sums[i] += __shfl_xor_sync(~0u, sums[i], apart);
        if (lane < LOOKED_ROWS) atomicAdd(&found[part][i], sums[i]);  // integers: exact
    }
    __syncthreads();
    if (start == 0 && largest.scaled())
        record_row(record, (double)k, found[part][0], found[part][1], found[part][2], found[part][3]);
}

// least: the density that COUNT moduli need, as the bits of a double. word: `enough` where it is
// there, else 0. seen: memory of the host, for both records: a copy of them would take 10 µs.
extern "C" __global__ void __launch_bounds__(32)
judge(const double *left, const double *right, long long least, int *word, double *seen,
      long long enough) {
    constexpr int NUMBERS_OF_RECORD = 6;
    follow();
    if (threadIdx.x < 2 * NUMBERS_OF_RECORD)
        seen[threadIdx.x] =
            (threadIdx.x < NUMBERS_OF_RECORD ? left : right)[threadIdx.x % NUMBERS_OF_RECORD];
    if (threadIdx.x != 0) return;
    *word = density(left, right) >= __longlong_as_double(least) ? (int)enough : 0;
}
