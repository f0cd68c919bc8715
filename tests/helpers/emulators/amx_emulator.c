/* AMX for a CPU that has none: computes its instructions where they trap, as the illegal ones that
 * they are to it. So what runs is the code that a library has, byte for byte, on real threads.
 *
 * Knows LDTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED, TDPBF16PS, TDPBSSD and
 * TDPBSUD, encoded by VEX, as Intel's Architecture Instruction Set Extensions Programming Reference has them: 64-bit addresses
 * of base, index and displacement, or relative to the next instruction; no segments. What a CPU
 * would refuse (tiles that have no shape, shapes that do not fit) is counted as a fault and not
 * done. Any other illegal instruction ends the process, as before. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, BYTES = 64, COLUMNS = BYTES / 4 };
enum { BEGUN, RELEASED, PRODUCTS, FAULTS, COUNTS };

struct state {
    uint8_t rows[TILES];
    uint16_t row_bytes[TILES]; /* 0: the tile has no shape */
    uint8_t tile[TILES][ROWS][BYTES];
};
static __thread struct state own;
static uint64_t counts[COUNTS];
static struct sigaction before;

static void count(int what) { __atomic_add_fetch(&counts[what], 1, __ATOMIC_RELAXED); }

/* What an instruction is made of. */
struct code {
    int prefix, opcode, mod, reg, rm, second; /* second: the register that VEX names */
    int index_free;                           /* there is a byte for base and index */
    uint8_t *address;
    int64_t pitch;
    const uint8_t *next;
};

static int64_t general(const gregset_t gregs, int number) {
    static const int places[16] = {
        REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
        REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    };
    return gregs[places[number]];
}

static int32_t word(const uint8_t *at) {
    int32_t found;
    memcpy(&found, at, 4);
    return found;
}

/* The operand in memory; `at` is behind the byte of mod, reg and rm. */
static const uint8_t *address(struct code *c, const gregset_t gregs, const uint8_t *at, int vex) {
    int index_high = vex & 0x40 ? 0 : 8, base_high = vex & 0x20 ? 0 : 8;
    int base = c->rm + base_high;
    int64_t sum = 0;
    c->pitch = 0;
    if (c->rm == 4) {
        int scale = *at >> 6, index = (*at >> 3 & 7) + index_high;
        base = (*at++ & 7) + base_high;
        c->index_free = 1;
        if (index != 4) c->pitch = general(gregs, index) << scale;
    }
    if (c->mod == 0 && (base & 7) == 5) {
        sum = word(at);
        at += 4;
        if (c->rm != 4) sum += (int64_t)at;
    } else {
        sum = general(gregs, base);
        if (c->mod == 1) sum += (int8_t)*at++;
        if (c->mod == 2) {
            sum += word(at);
            at += 4;
        }
    }
    c->address = (uint8_t *)sum;
    return at;
}

/* Whether it is an instruction of the map and length that all of AMX have. */
static int decode(struct code *c, const gregset_t gregs) {
    const uint8_t *at = (const uint8_t *)gregs[REG_RIP];
    if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || at[2] & 0x84) return 0; /* VEX.128.0F38.W0 */
    int vex = at[1];
    memset(c, 0, sizeof *c);
    c->prefix = at[2] & 3;
    c->second = ~at[2] >> 3 & 15;
    c->opcode = at[3];
    c->mod = at[4] >> 6;
    c->reg = (at[4] >> 3 & 7) + (vex & 0x80 ? 0 : 8);
    c->rm = at[4] & 7;
    c->next = c->mod == 3 ? at + 5 : address(c, gregs, at + 5, vex);
    if (c->mod == 3 && !(vex & 0x20)) c->rm += 8;
    return 1;
}

static int shaped(int tile) { return tile < TILES && own.row_bytes[tile]; }

static void configure(const uint8_t *at) {
    struct state shape;
    memset(&shape, 0, sizeof shape);
    for (int i = 2; i < 64; i++)
        if ((i < 16 || (i >= 32 && i < 48) || i >= 56) && at[i]) { count(FAULTS); return; }
    for (int i = 0; i < TILES; i++) {
        shape.row_bytes[i] = (uint16_t)(at[16 + 2 * i] | at[17 + 2 * i] << 8);
        shape.rows[i] = at[48 + i];
        if (shape.row_bytes[i] > BYTES || shape.rows[i] > ROWS ||
            !shape.row_bytes[i] != !shape.rows[i]) { count(FAULTS); return; }
    }
    if (at[0] != 1 || at[1] != 0) { count(FAULTS); return; }
    own = shape;
    count(BEGUN);
}

static void move_tile(const struct code *c, int to_memory) {
    if (!shaped(c->reg) || !c->index_free) { count(FAULTS); return; }
    if (!to_memory) memset(own.tile[c->reg], 0, sizeof own.tile[c->reg]);
    for (int r = 0; r < own.rows[c->reg]; r++) {
        uint8_t *there = c->address + r * c->pitch, *here = own.tile[c->reg][r];
        memcpy(to_memory ? there : here, to_memory ? here : there, own.row_bytes[c->reg]);
    }
}

static float bf16(uint32_t bits) {
    float value;
    bits <<= 16;
    memcpy(&value, &bits, 4);
    return value;
}

static int fit(int sums, int left, int right) {
    if (shaped(sums) && shaped(left) && shaped(right) && sums != left && sums != right &&
        left != right && own.rows[sums] == own.rows[left] &&
        own.row_bytes[sums] == own.row_bytes[right] && own.row_bytes[left] / 4 == own.rows[right])
        return 1;
    count(FAULTS);
    return 0;
}

/* Even and odd products have sums of their own, in order of k, which are added last. */
static void multiply(int sums, int left, int right) {
    if (!fit(sums, left, right)) return;
    for (int m = 0; m < own.rows[sums]; m++) { /* behind a row's end all tiles are zero */
        float even[COLUMNS] = {0}, odd[COLUMNS] = {0}, row[COLUMNS];
        for (int k = 0; k < own.row_bytes[left] / 4; k++) {
            uint32_t a = (uint32_t)word(own.tile[left][m] + 4 * k);
            for (int n = 0; n < COLUMNS; n++) {
                uint32_t b = (uint32_t)word(own.tile[right][k] + 4 * n);
                even[n] = __builtin_fmaf(bf16(a & 0xFFFF), bf16(b & 0xFFFF), even[n]);
                odd[n] = __builtin_fmaf(bf16(a >> 16), bf16(b >> 16), odd[n]);
            }
        }
        memcpy(row, own.tile[sums][m], sizeof row);
        for (int n = 0; n < COLUMNS; n++) row[n] += even[n] + odd[n];
        memcpy(own.tile[sums][m], row, sizeof row);
    }
    count(PRODUCTS);
}

/* Signed bytes times bytes, in int32. */
static void multiply_bytes(int sums, int left, int right, int right_signed) {
    if (!fit(sums, left, right)) return;
    for (int m = 0; m < own.rows[sums]; m++)
        for (int n = 0; n < own.row_bytes[sums] / 4; n++) {
            int32_t sum = word(own.tile[sums][m] + 4 * n);
            for (int k = 0; k < own.row_bytes[left]; k++) {
                uint8_t b = own.tile[right][k / 4][4 * n + k % 4];
                sum += (int8_t)own.tile[left][m][k] * (right_signed ? (int8_t)b : b);
            }
            memcpy(own.tile[sums][m] + 4 * n, &sum, 4);
        }
    count(PRODUCTS);
}

/* Whether it was one of AMX's. Prefixes: 0 none, 1 66, 2 F3, 3 F2. */
__attribute__((noinline)) static int run(const struct code *c) {
    switch (c->opcode << 4 | c->prefix << 1 | (c->mod == 3)) {
    case 0x490: configure(c->address); return 1;
    case 0x491: memset(&own, 0, sizeof own); count(RELEASED); return 1;
    case 0x497:
        if (!shaped(c->reg)) count(FAULTS);
        else memset(own.tile[c->reg], 0, sizeof own.tile[c->reg]);
        return 1;
    case 0x4B2:
    case 0x4B6: move_tile(c, 0); return 1;
    case 0x4B4: move_tile(c, 1); return 1;
    case 0x5C5: multiply(c->reg, c->rm, c->second); return 1;
    case 0x5E5: multiply_bytes(c->reg, c->rm, c->second, 0); return 1;
    case 0x5E7: multiply_bytes(c->reg, c->rm, c->second, 1); return 1;
    default: return 0;
    }
}

static void on_illegal(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    gregset_t *gregs = &((ucontext_t *)context)->uc_mcontext.gregs;
    struct code code;
    unsigned int mode = _mm_getcsr();
    _mm_setcsr(0x9FC0); /* AMX's own: nearest even, subnormals are zero, no exceptions */
    int known = 0;
    for (; decode(&code, *gregs) && run(&code); known++) /* a trap for all that are in a row */
        (*gregs)[REG_RIP] = (greg_t)code.next;
    _mm_setcsr(mode);
    if (!known) sigaction(SIGILL, &before, NULL); /* and meets it again */
}

/* Begin to emulate, with all counts at 0; 0 if that worked. */
int amx_begin(void) {
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    memset(counts, 0, sizeof counts);
    ours.sa_sigaction = on_illegal;
    ours.sa_flags = SA_SIGINFO;
    return sigaction(SIGILL, &ours, &before);
}

/* The counts: shapes set, shapes given up, products, faults. */
const uint64_t *amx_end(void) {
    sigaction(SIGILL, &before, NULL);
    return counts;
}
