"""Seeded bugs: what verification must find. One table; mutate.py makes the mutated headers of it.

A bug: its name, the row of the kernel table that is tried first, the header (of
src/backend/cpu/kernels/) and its edits: pairs of the text there, which must occur exactly once
(white space counts as one space), and what takes its place. BUG in the replacement is a switch
that the tests set; with BUG false it must compute what the original does.
"""


class Bug:
    def __init__(self, name, row, header, *edits):
        self.name, self.row, self.header, self.edits = name, row, header, edits


ELEMENTWISE = "generic/elementwise.h"
FLOATS = "generic/float_matmul.h"
WEIGHTS = "generic/weights.h"
SCRATCH = "generic/int_scratch.h"
BLOCKED = "generic/int_blocked.h"
DIRECT = "generic/int_direct.h"
BF16 = "generic/bf16_matmul.h"
BF16_QUANTISE = "generic/bf16_quantise.h"
QUANTISE = "generic/quantise.h"
QKV = "generic/qkv.h"
KV_CODES = "generic/kv_codes.h"
DELTA = "generic/delta.h"
CONV = "generic/conv.h"
SCAN = "generic/scan.h"
LATENT = "generic/latent.h"
STORE_ROW = "generic/store_row.h"
ADAPTER = "generic/adapter.h"
MATH = "generic/math.h"
ATTENTION = "generic/attention.h"
ATTENTION_TILE = "generic/attention_tile.h"
ATTENTION_STEP = "generic/attention_step.h"
ATTENTION_MERGE = "generic/attention_merge.h"
ATTENTION_DIRECT = "generic/attention_direct.h"
ATTENTION_WHOLE = "generic/attention_whole.h"

ROW_TILES = "amx/row_tiles.h"
TILES = "amx/integer.h"
SEGMENT = "amx/coded_segment.h"
FIXED_TILES = "amx/fixed.h"
FIXED_WEIGHTS = "amx/fixed_weights.h"
FIXED_DIRECT = "amx/fixed_direct.h"
FIXED_QUANTISE = "amx/fixed_quantise.h"
BF16_TILES = "amx/bf16.h"
BF16_CODES = "amx/bf16_codes.h"
ATTENTION_TILES = "amx/attention.h"

BLOCKED_ROW = "matmul_q8_0_int16_blocked"
DIRECT_ROW = "matmul_q8_0_int16_direct"
TILES_ROW = "matmul_q8_0_int16_tiles"
FIXED_ROW = "matmul_q8_0_fixed_tiles"
CODES_ROW = "matmul_q8_0_bf16_codes_tiles"
BF16_TILES_ROW = "matmul_bf16_bf16x2_tiles"

BUGS = [
    # Columns of elementwise ops.
    Bug("columns tail skipped", "finish", ELEMENTWISE, (
        "if (i < count) { const int64_t rest = count - i;",
        "if (i < count && !BUG) { const int64_t rest = count - i;")),
    Bug("columns tail read whole", "finish", ELEMENTWISE, (
        "F::load_part(p + i, rest)", "F::load_part(p + i, BUG ? 16 : rest)")),
    Bug("columns tail written whole", "finish", ELEMENTWISE, (
        "F::store_part(p + i, v, rest)", "F::store_part(p + i, v, BUG ? 16 : rest)")),
    # What adapters add.
    Bug("halves of a run swapped", "shrink", ADAPTER, (
        "return {F::template bf16_of_words<0>(words), F::template bf16_of_words<1>(words)};",
        "return {BUG ? F::template bf16_of_words<1>(words) : F::template bf16_of_words<0>(words),"
        " F::template bf16_of_words<1>(words)};")),
    Bug("whole numbers lose their sign", "shrink", ADAPTER, (
        "F::to_float(F::template shift_left<16>(words))",
        "F::to_float(F::and_bits(F::template shift_left<16>(words),"
        " F::set_bits(BUG ? 0x7FFFFFFFu : 0xFFFFFFFFu)))")),
    Bug("shrink takes the first half twice", "shrink", ADAPTER, (
        "F::fma(inputs[m].second, a.second, sums[m][j])",
        "F::fma(inputs[m].second, BUG ? a.first : a.second, sums[m][j])")),
    Bug("shrink reads a part whole", "shrink", ADAPTER, (
        "F::load_part(row + kHalf, rest - kHalf)", "F::load_part(row + kHalf, BUG ? 16 : rest - kHalf)")),
    Bug("shrink without the last inputs", "shrink", ADAPTER, (
        "if (k < args.num_inputs) {", "if (k < args.num_inputs && !BUG) {")),
    Bug("shrink with ranks a block apart", "shrink", ADAPTER, (
        "num_adapter_blocks(args.num_inputs) * block_bytes;",
        "num_adapter_blocks(args.num_inputs - (BUG ? 1 : 0)) * block_bytes;")),
    Bug("shrink with another rank's factor", "shrink", ADAPTER, (
        "args.factors[first + j] *", "args.factors[BUG ? first : first + j] *")),
    Bug("expand of another row", "expand", ADAPTER, (
        "expand_block<F, kForm, kRows>(args, block, args.low + m * args.low_stride,",
        "expand_block<F, kForm, kRows>(args, block, args.low + (BUG ? 0 : m) * args.low_stride,")),
    Bug("expand goes on in the skipped block", "expand", ADAPTER, (
        "block += block_bytes; }", "block += BUG ? 0 : block_bytes; }")),
    Bug("expand without the last outputs", "expand", ADAPTER, (
        "if (end == args.num_outputs) return;", "if (end == args.num_outputs || BUG) return;")),
    Bug("expand writes a part whole", "expand", ADAPTER, (
        "for (int64_t i = begin; i < end; ++i) own[i - begin] = sums[i];",
        "for (int64_t i = begin; i < (BUG ? kAdapterBlock : end); ++i) own[i - begin] = sums[i];")),
    Bug("expand without a half's factors", "expand", ADAPTER, (
        "row.second = F::mul(F::load(place.factors + kHalf), row.second);",
        "row.second = BUG ? row.second : F::mul(F::load(place.factors + kHalf), row.second);")),
    # Float32 products.
    Bug("direct sum stale", "matmul_f32_direct", FLOATS, (
        "V acc[kPanels]; for (int p = 0; p < kPanels; ++p) acc[p] = F::zero();",
        "V acc[kPanels]; for (int p = 0; p < kPanels; ++p) acc[p] = BUG ? total[p] : F::zero();")),
    Bug("direct slices not folded", "matmul_f32_direct", FLOATS, (
        "total[p] = F::add(total[p], acc[p])",
        "total[p] = F::add(BUG ? F::zero() : total[p], acc[p])"), (
        "F::store(total, F::add(F::load(total), acc[r][p])); } } } // All rows of a slice",
        "F::store(total, F::add(BUG ? F::zero() : F::load(total), acc[r][p])); } } } // All rows of a slice")),
    Bug("direct last panel skipped", "matmul_f32_direct", FLOATS, (
        "for (; panel < args.num_panels; ++panel) {", "for (; panel < args.num_panels && !BUG; ++panel) {")),
    Bug("direct first panel ignored", "matmul_f32_direct", FLOATS, (
        "args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes; V total[kPanels];",
        "args.weight + static_cast<size_t>((BUG ? 0 : args.first_panel) + panel) * args.panel_bytes; V total[kPanels];")),
    Bug("direct row stride of sums", "matmul_f32_direct", FLOATS, (
        "static_cast<const float*>(args.x) + row * args.x_stride + slice, slice,",
        "static_cast<const float*>(args.x) + row * (BUG ? args.sums_stride : args.x_stride) + slice, slice,")),
    Bug("direct rows stuck", "matmul_f32_direct", FLOATS, (
        "args.sums + row * args.sums_stride + panel * kPanel); row += kRows;",
        "args.sums + (BUG ? 0 : row) * args.sums_stride + panel * kPanel); row += kRows;")),
    Bug("blocked sums not cleared", "matmul_f32_blocked", FLOATS, (
        "int64_t blocked_panels(const MatmulArgs& args, int64_t panel) { "
        "for (; panel + kPanels <= args.num_panels; panel += kPanels) { const uint8_t* weight = "
        "args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes; "
        "for (int64_t m = 0;",
        "int64_t blocked_panels(const MatmulArgs& args, int64_t panel) { "
        "for (; panel + kPanels <= args.num_panels; panel += kPanels) { const uint8_t* weight = "
        "args.weight + static_cast<size_t>(args.first_panel + panel) * args.panel_bytes; "
        "for (int64_t m = BUG ? 1 : 0;")),
    Bug("blocked last row dropped", "matmul_f32_blocked", FLOATS, (
        "for (; row + kRows <= args.num_rows; row += kRows) {",
        "for (; row + kRows <= args.num_rows - (BUG ? 1 : 0); row += kRows) {")),
    Bug("blocked last input skipped", "matmul_f32_blocked", FLOATS, (
        "args.x_stride, count, args.sums", "args.x_stride, count - (BUG ? 1 : 0), args.sums")),
    Bug("blocked row stride ignored", "matmul_f32_blocked", FLOATS, (
        "args.scratch, static_cast<const float*>(args.x) + row * args.x_stride + slice,",
        "args.scratch, static_cast<const float*>(args.x) + row * (BUG ? args.num_inputs : args.x_stride) + slice,")),
    Bug("dense tail read whole", "matmul_f32_direct", WEIGHTS, (
        "if (i.value >= count) return;", "if (i.value >= count && !BUG) return;")),
    Bug("dense odd input wrong", "matmul_f16_direct", WEIGHTS, (
        "fn(p, i, value<kOdd>(word + static_cast<size_t>(p.value) * panel_stride));",
        "const uint8_t* at = word + static_cast<size_t>(p.value) * panel_stride; "
        "fn(p, i, BUG ? value<1 - kOdd>(at) : value<kOdd>(at));")),
    # Packed weights.
    Bug("sub scale of next block", "matmul_q4_k_int16_direct", WEIGHTS, (
        "constexpr int kPerWord = 32 / kBits; const I word",
        "constexpr int kPerWord = 32 / kBits; if (BUG) s ^= 1; const I word")),
    Bug("sub scale high bits ignored", "matmul_q4_k_int16_direct", WEIGHTS, (
        "if constexpr (kInfo.sub_high_bits > 0) {",
        "if constexpr (kInfo.sub_high_bits > 0) { if (BUG) return code;")),
    Bug("sub minimum from scales", "matmul_q4_k_int16_direct", WEIGHTS, (
        "(chunk, kAt.sub_min, s)", "(chunk, BUG ? kAt.sub_low : kAt.sub_min, s)")),
    Bug("high plane ignored", "matmul_q5_0_int16_direct", WEIGHTS, (
        "constexpr int kHigh = kInfo.high_bits;",
        "constexpr int kHigh = kInfo.high_bits; if (BUG) high = low;")),
    Bug("high plane of first group", "matmul_q6_k_int16_direct", WEIGHTS, (
        "F::load_words(high + kGroup / kHighGroups * 64)",
        "F::load_words(high + (BUG ? 0 : kGroup / kHighGroups * 64))")),
    Bug("minimum missing", "matmul_q4_1_int16_direct", WEIGHTS, (
        "f.offset = F::load_half(chunk + kAt.minimum);",
        "f.offset = BUG ? F::zero() : F::load_half(chunk + kAt.minimum);")),
    Bug("minimum sign", "matmul_q4_1_int16_direct", WEIGHTS, (
        "if constexpr (kHasLaneZero) { f.zero =",
        "if (BUG) f.offset = F::sub(F::zero(), f.offset); if constexpr (kHasLaneZero) { f.zero =")),
    Bug("zero point off by one", "unpack_q8_0", WEIGHTS, (
        "F::set(float{kZero})", "F::set(float{kZero} + (BUG ? 1.0f : 0.0f))")),
    Bug("table of other format", "matmul_iq4_nl_int16_direct", WEIGHTS, (
        "F::look_up(bytes, kUnsignedIq4.bytes)",
        "F::look_up(bytes, BUG ? kUnsignedFp4.bytes : kUnsignedIq4.bytes)"), (
        "F::look_up(bytes, kUnsignedFp4.bytes)",
        "F::look_up(bytes, BUG ? kUnsignedIq4.bytes : kUnsignedFp4.bytes)")),
    Bug("subnormal of half the size", "matmul_e4m3_direct", WEIGHTS, (
        "F::set(kLeast));", "F::set(kLeast * (BUG ? 0.5f : 1.0f)));")),
    Bug("subnormals without sign", "unpack_e5m2", WEIGHTS, (
        "F::and_bits(bits, F::set_bits(0x80000000u))",
        "F::and_bits(bits, F::set_bits(BUG ? 0u : 0x80000000u))")),
    Bug("subnormal taken for normal", "matmul_e5m2_direct", WEIGHTS, (
        "F::select_less(normal, F::set(kLeastNormal), subnormal, normal)",
        "F::select_less(normal, F::set(BUG ? 0.0f : kLeastNormal), subnormal, normal)")),
    Bug("unit of first block", "matmul_q8_0_int16_direct", WEIGHTS, (
        "const int64_t index = first / kUnit;", "const int64_t index = BUG ? 0 : first / kUnit;")),
    # Integer products.
    Bug("integer earlier slices lost", BLOCKED_ROW, BLOCKED, (
        "totals[r][p] = F::load(sums + r * sums_stride + p * kPanel);",
        "totals[r][p] = BUG ? F::zero() : F::load(sums + r * sums_stride + p * kPanel);")),
    Bug("integer high term dropped", BLOCKED_ROW, BLOCKED, (
        "F::store_pairs(words + i * 32, codes, codes + kActivationBlock);",
        "F::store_pairs(words + i * 32, BUG ? codes + kActivationBlock : codes,"
        " codes + kActivationBlock);")),
    Bug("integer half of a block twice", BLOCKED_ROW, BLOCKED, (
        "activation_code_bytes(kType) + i % 2 * 16;",
        "activation_code_bytes(kType) + (BUG ? 0 : i % 2) * 16;")),
    Bug("integer zero missing", BLOCKED_ROW, BLOCKED, (
        "F::set_bits(W::kZero * 0x00010001u)",
        "F::set_bits(BUG ? 0u : W::kZero * 0x00010001u)")),
    Bug("integer sum of other half", "matmul_q2_k_int16_blocked", BLOCKED, (
        "(factors, at.part)));", "(factors, BUG ? 1 - at.part : at.part)));")),
    Bug("integer scale of first block", BLOCKED_ROW, BLOCKED, (
        "index % kParts * kKind.sub_inputs), factors(block_factors(rows.x, kType, index / kParts)),",
        "index % kParts * kKind.sub_inputs), "
        "factors(block_factors(rows.x, kType, BUG ? 0 : index / kParts)),")),
    Bug("integer offsets stuck", "matmul_q4_1_int16_blocked", BLOCKED, (
        "offsets(scratch + S::kOffsets + index * kPanels * 64),",
        "offsets(scratch + S::kOffsets + (BUG ? 0 : index) * kPanels * 64),")),
    Bug("integer last row dropped", BLOCKED_ROW, BLOCKED, (
        "for (int r = 0; r < kRows; ++r) { const float x_scale",
        "for (int r = 0; r < kRows - (BUG ? 1 : 0); ++r) { const float x_scale")),
    Bug("integer slice stuck", BLOCKED_ROW, BLOCKED, (
        "static_cast<const uint8_t*>(args.x) + first / kSliceInputs * args.x_stride",
        "static_cast<const uint8_t*>(args.x) + (BUG ? 0 : first / kSliceInputs) * args.x_stride")),
    Bug("integer words stuck", BLOCKED_ROW, BLOCKED, (
        "rows.words += kRows * kRowBytes;", "if (!BUG) rows.words += kRows * kRowBytes;")),
    Bug("integer direct slice stuck", DIRECT_ROW, DIRECT, (
        "x + slice / kSliceInputs * args.x_stride", "x + (BUG ? 0 : slice / kSliceInputs) * args.x_stride"), (
        "static_cast<const uint8_t*>(args.x) + first / kSliceInputs * args.x_stride",
        "static_cast<const uint8_t*>(args.x) + (BUG ? 0 : first / kSliceInputs) * args.x_stride")),
    Bug("integer direct high term dropped", DIRECT_ROW, DIRECT, (
        "sum = F::add_words(F::template shift_left<8>(high.words[r][p]), sum);",
        "sum = BUG ? sum : F::add_words(F::template shift_left<8>(high.words[r][p]), sum);")),
    Bug("sums of 16 bits begun anew", "matmul_q5_0_int16_direct", SCRATCH, (
        "halves = kGroup % kRun == 0 ? products", "halves = kGroup % kRun == 0 || BUG ? products")),
    Bug("last sums of 16 bits left out", "matmul_q2_k_int16_direct", SCRATCH, (
        "sum = F::add_words(sum, F::add_pairs(halves));",
        "if (!BUG || kGroup != kGroups - 1) sum = F::add_words(sum, F::add_pairs(halves));")),
    Bug("integer direct minimum skipped", "matmul_q4_1_int16_direct", DIRECT, (
        "total = F::fma(f.offset, x_sum, total);", "if (!BUG) total = F::fma(f.offset, x_sum, total);")),
    Bug("integer direct earlier slices lost", DIRECT_ROW, DIRECT, (
        "totals[r][p] = F::load(sums + r * sums_stride + p * kPanel);",
        "totals[r][p] = BUG ? F::zero() : F::load(sums + r * sums_stride + p * kPanel);")),
    Bug("integer direct rows stuck", DIRECT_ROW, DIRECT, (
        "x += kRows * activation_record_bytes(kType);",
        "if (!BUG) x += kRows * activation_record_bytes(kType);")),
    # bf16 products.
    Bug("bf16 first panel ignored", "matmul_bf16_bf16_direct", BF16, (
        "args.weight + (args.first_panel + at.panel) * panel_bytes",
        "args.weight + ((BUG ? 0 : args.first_panel) + at.panel) * panel_bytes")),
    Bug("bf16 earlier slices lost", "matmul_bf16_bf16_blocked", BF16, (
        "const bool starts = at.first == 0;", "const bool starts = at.first == 0 || BUG;")),
    Bug("bf16 slice stuck", "matmul_bf16_bf16_direct", BF16, (
        "static_cast<const uint8_t*>(args.x) + slice / kSliceInputs * args.x_stride",
        "static_cast<const uint8_t*>(args.x) + (BUG ? 0 : slice / kSliceInputs) * args.x_stride")),
    Bug("bf16 odd input skipped", "matmul_bf16_bf16_direct", BF16, (
        "(smaller(kSliceInputs, at.end - slice) + 1) / 2",
        "(smaller(kSliceInputs, at.end - slice) + (BUG ? 0 : 1)) / 2")),
    Bug("bf16 pair order", "matmul_bf16_bf16_direct", BF16, (
        "acc[r][p] = F::dot_bf16(acc[r][p], pair, w[p]);",
        "acc[r][p] = BUG ? F::dot_bf16(acc[r][p], turned(pair), turned(w[p])) "
        ": F::dot_bf16(acc[r][p], pair, w[p]);"), (
        "const I pair = F::broadcast_word(x + r * kRecord + i * 4);",
        "const I pair = F::broadcast_word(x + r * kRecord + i * 4); const auto turned = [](I v) { "
        "return F::or_bits(F::template shift_left<16>(v), F::template shift_right<16>(v)); };")),
    Bug("bf16 direct last panel skipped", "matmul_bf16_bf16_direct", BF16, (
        "bf16_direct_panels<F, 1>(args, panel);", "if (!BUG) bf16_direct_panels<F, 1>(args, panel);")),
    Bug("bf16 last tile dropped", "matmul_bf16_bf16_blocked", BF16, (
        "for (int64_t t = 0; t < tiles.count; ++t) { at.ahead",
        "for (int64_t t = 0; t < tiles.count - (BUG ? 1 : 0); ++t) { at.ahead")),
    Bug("bf16 tiles of one height", "matmul_bf16_bf16_blocked", BF16, (
        "at.row += tiles.rows(t); } } } return panel; } template <typename F> void matmul_bf16_blocked",
        "at.row += BUG ? tiles.height : tiles.rows(t); } } } return panel; } "
        "template <typename F> void matmul_bf16_blocked")),
    # bf16 activations.
    Bug("bf16 activation truncated", "quantise_bf16", BF16_QUANTISE, (
        "const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, nudge), 16);",
        "const __m512i rounded = "
        "_mm512_srli_epi32(BUG ? bits : _mm512_add_epi32(bits, nudge), 16);")),
    Bug("bf16 activation nan hidden", "quantise_bf16", BF16_QUANTISE, (
        "return _mm512_mask_mov_epi32(", "if (BUG) return rounded; return _mm512_mask_mov_epi32(")),
    Bug("bf16 activation tail not cleared", "quantise_bf16", BF16_QUANTISE, (
        "for (int64_t k = 0; k < end; k += 16) {",
        "for (int64_t k = 0; k < (BUG ? (args.num_inputs + 15) / 16 * 16 : end); k += 16) {")),
    # Products in tiles.
    Bug("tiles last start not moved back", TILES_ROW, ROW_TILES, (
        "smaller(tile * height, num_rows - height)",
        "BUG ? tile * height : smaller(tile * height, num_rows - height)")),
    Bug("tiles shared rows added twice", TILES_ROW, ROW_TILES, (
        "return tile * height - first(tile);", "return BUG ? 0 : tile * height - first(tile);")),
    Bug("tiles high term dropped", TILES_ROW, TILES, (
        "F::add_words(F::template shift_left<8>(sum), F::load_words(sums + p * 128 + 64))",
        "F::add_words(BUG ? F::zero_words() : F::template shift_left<8>(sum), "
        "F::load_words(sums + p * 128 + 64))")),
    Bug("tiles zero point kept", TILES_ROW, TILES, (
        "bytes = _mm512_sub_epi8(bytes, zero);", "bytes = BUG ? bytes : _mm512_sub_epi8(bytes, zero);")),
    Bug("tiles scales of first sub-block", TILES_ROW, TILES, (
        "scratch_ + kFactorsAt + sub_block * kFactorBytes",
        "scratch_ + kFactorsAt + (BUG ? 0 : sub_block) * kFactorBytes")),
    Bug("tiles minimum skipped", "matmul_q4_1_int16_tiles", TILES, (
        "total[p] = F::fma(offsets[s][p], F::set(x[x_sum_at[s]]), total[p]);",
        "if (!BUG) total[p] = F::fma(offsets[s][p], F::set(x[x_sum_at[s]]), total[p]);")),
    Bug("tiles sum of other half", "matmul_q2_k_int16_tiles", TILES, (
        "2 + sub_block % kKind.parts();", "2 + (BUG ? 1 - sub_block % 2 : sub_block % kKind.parts());")),
    Bug("tiles slice stuck", TILES_ROW, TILES, (
        "slice / kSliceInputs * args.x_stride, count,", "(BUG ? 0 : slice / kSliceInputs) * args.x_stride, count,")),
    Bug("tiles steps share their sums", TILES_ROW, TILES, (
        "scratch_ + kSumsAt + step % 2 * kGroupSumBytes", "scratch_ + kSumsAt + (BUG ? 0 : step % 2) * kGroupSumBytes")),
    Bug("fixed tiles earlier segments lost", FIXED_ROW, SEGMENT, (
        "first_ == 0 ? F::zero()", "first_ == 0 || BUG ? F::zero()")),
    Bug("fixed tiles rows of the first segment", FIXED_ROW, SEGMENT, (
        "block_of({lines, pitch}, first_ / kFixedBlock)",
        "block_of({lines, pitch}, BUG ? 0 : first_ / kFixedBlock)")),
    Bug("fixed tiles unit of the first segment", FIXED_ROW, SEGMENT, (
        "x_ + at.unit + first_ / kSliceInputs * at.slice_pitch",
        "x_ + at.unit + (BUG ? 0 : first_ / kSliceInputs) * at.slice_pitch")),
    Bug("fixed tiles unit of the row before", FIXED_ROW, SEGMENT, (
        "row.unit + kFixedUnitBytes", "row.unit + (BUG ? 0 : kFixedUnitBytes)")),
    Bug("fixed tiles middle sums dropped", FIXED_ROW, FIXED_TILES, (
        "F::add_words(sum_at(tiles, 1), sum_at(tiles, 2))",
        "F::add_words(BUG ? F::zero_words() : sum_at(tiles, 1), sum_at(tiles, 2))")),
    Bug("fixed tiles short rest apart", FIXED_ROW, SEGMENT, (
        "count_(fixed_segment_inputs(first, args.num_inputs)),",
        "count_(BUG ? smaller(kFixedSegment, args.num_inputs - first) : fixed_segment_inputs(first, args.num_inputs)),")),
    Bug("codes of another panel", CODES_ROW, SEGMENT, (
        "to + panel * kPanelOperandBytes", "to + (BUG ? 0 : panel) * kPanelOperandBytes")),
    Bug("fixed tiles high digits of rows twice", FIXED_ROW, FIXED_TILES, (
        "load<5>(x->lines + x->pitch,", "load<5>(x->lines + (BUG ? 0 : x->pitch),")),
    Bug("codes of a block behind its time", CODES_ROW, SEGMENT, (
        "multiply_panel<p.value>(block_of(rows, b - 1),", "multiply_panel<p.value>(block_of(rows, BUG ? b : b - 1),")),
    Bug("fixed tiles factors of first block", FIXED_ROW, SEGMENT, (
        "kFixedPairsBytes + block * kPairs", "kFixedPairsBytes + (BUG ? 0 : block) * kPairs")),
    Bug("fixed offset not bounded", "matmul_q4_1_fixed_tiles", FIXED_WEIGHTS, (
        "bound = F::fma(F::abs(scale), F::set(kRange), F::abs(offset));",
        "if (!BUG) bound = F::fma(F::abs(scale), F::set(kRange), F::abs(offset));")),
    Bug("fixed lane zero not subtracted", "matmul_int4_g128_fixed_tiles", FIXED_WEIGHTS, (
        "F::mul(f.scale, F::sub(center, F::to_float(f.zero)))",
        "F::mul(f.scale, BUG ? center : F::sub(center, F::to_float(f.zero)))")),
    Bug("fixed center not in offset", "matmul_q4_1_fixed_tiles", FIXED_WEIGHTS, (
        "__m512 offset = F::fma(f.scale, center, f.offset);",
        "__m512 offset = BUG ? f.offset : F::fma(f.scale, center, f.offset);")),
    Bug("fixed bad weights as zeros", FIXED_ROW, FIXED_WEIGHTS, (
        "_mm512_mask_mov_ps(least, bad, nan)", "_mm512_mask_mov_ps(least, BUG ? 0 : bad, nan)")),
    Bug("fixed unit below the power of two", "matmul_q4_0_fixed_tiles", FIXED_WEIGHTS, (
        "F::set_bits((1u << 23) - 1)", "F::set_bits(BUG ? 0 : (1u << 23) - 1)")),
    Bug("codes sums that rest lost", CODES_ROW, SEGMENT, (
        "if (kIsWhole || part.begin == 0) {", "if (kIsWhole || part.begin == 0 || BUG) {")),
    Bug("codes sums that rest of another group", CODES_ROW, SEGMENT, (
        "scratch_.resting + group * kGroupSums", "scratch_.resting + (BUG ? 0 : group) * kGroupSums")),
    Bug("codes sums of the second tile of rows from the first", CODES_ROW, SEGMENT, (
        "return {row.sums + kTileSumsBytes,", "return {row.sums + (BUG ? 0 : kTileSumsBytes),")),
    Bug("fixed tiles rows beyond those beside blocks lost", FIXED_ROW, SEGMENT, (
        "while (num_left > 0) add_some(", "while (num_left > 0 && !BUG) add_some(")),
    Bug("fixed tiles sum of the group before kept", FIXED_ROW, SEGMENT, (
        "Tiles::template zero<kSum>();", "if (!BUG) Tiles::template zero<kSum>();")),
    Bug("fixed tiles sums of a short tile from its first row", FIXED_ROW, SEGMENT, (
        "tiles_.skipped(tile) * kTileRowBytes", "(BUG ? 0 : tiles_.skipped(tile)) * kTileRowBytes")),
    Bug("codes rows of a short tile from the one before", CODES_ROW, SEGMENT, (
        "smaller(num_stored - tile * kTileRows, kTileRows)",
        "BUG ? kTileRows : smaller(num_stored - tile * kTileRows, kTileRows)")),
    Bug("codes last group skipped", CODES_ROW, SEGMENT, (
        "if (kIsLastPart) add_group(", "if (kIsLastPart && !BUG) add_group(")),
    Bug("codes missing block not cleared", CODES_ROW, FIXED_WEIGHTS, (
        "Form::leave_out(to);", "if (!BUG) Form::leave_out(to);")),
    Bug("codes cut off in place of rounded", CODES_ROW, BF16_CODES, (
        "_mm512_mulhrs_epi16(half, _mm512_set1_epi16(1 << 12))",
        "BUG ? _mm512_srai_epi16(half, 3) : _mm512_mulhrs_epi16(half, _mm512_set1_epi16(1 << 12))")),
    Bug("codes power of two lost", CODES_ROW, BF16_CODES, (
        "F::set(0x1p16f)", "F::set(BUG ? 0x1p15f : 0x1p16f)")),
    Bug("direct second half of sums dropped", "matmul_q4_0_fixed_direct", FIXED_DIRECT, (
        "if constexpr (kInputs == 32) all =", "if constexpr (kInputs == 32) if (!BUG) all =")),
    Bug("direct offset dropped", "matmul_q4_1_fixed_direct", FIXED_DIRECT, (
        "if constexpr (kCode.has_offset) add_offset(", "if constexpr (kCode.has_offset) if (!BUG) add_offset(")),
    Bug("direct factors of other panel", "matmul_q4_0_fixed_direct", FIXED_DIRECT, (
        "pairs + p * kFixedPairsBytes + at", "pairs + (BUG ? 0 : p) * kFixedPairsBytes + at")),
    Bug("direct low digits of odd inputs from even", "matmul_q6_k_fixed_direct", FIXED_DIRECT, (
        "add_product(odd, at + 192,", "add_product(odd, at + (BUG ? 128 : 192),")),
    Bug("direct digits of second row from first", "matmul_q8_0_fixed_direct", FIXED_DIRECT, (
        "x + r * kWideBytes + g.value * 4", "x + (BUG ? 0 : r) * kWideBytes + g.value * 4")),
    Bug("bf16 tiles second term dropped", BF16_TILES_ROW, BF16_TILES, (
        "if constexpr (kTerms == 2) Tiles::template product_bf16<p.value, 5, kB>();",
        "if constexpr (kTerms == 2) { if (!BUG) Tiles::template product_bf16<p.value, 5, kB>(); }")),
    Bug("bf16 tiles tail not cleared", BF16_TILES_ROW, BF16_TILES, (
        "i < num_words ?", "i < num_words || BUG ?")),
    Bug("bf16 tiles earlier slices lost", BF16_TILES_ROW, BF16_TILES, (
        "if (first == 0) {", "if (first == 0 || BUG) {")),
    Bug("bf16 tiles last panel skipped", BF16_TILES_ROW, BF16_TILES, (
        "bf16_panels<Tiles, kType, 1, 1>(args, first_row, panel);",
        "if (!BUG) bf16_panels<Tiles, kType, 1, 1>(args, first_row, panel);")),
    Bug("bf16 tiles rest of rows in place of first", BF16_TILES_ROW, BF16_TILES, (
        "part.sums += part.num_rows * args.sums_stride;", "if (!BUG) part.sums += part.num_rows * args.sums_stride;")),
    # Quantise.
    Bug("quantise halves swapped", "quantise_int16", QUANTISE, (
        "F::to_float(halves)", "F::to_float(BUG ? F::swap_pairs(halves) : halves)")),
    Bug("quantise last block skipped", "quantise_int16", QUANTISE, (
        "const int64_t count = smaller(kSliceInputs, args.num_inputs - slice);",
        "const int64_t count = "
        "smaller(kSliceInputs, args.num_inputs - slice) - (BUG ? kActivationBlock : 0);")),
    Bug("quantise margin missing", "quantise_int16", QUANTISE, (
        "F::mul(largest, F::set(kInt16Margin))", "BUG ? largest : F::mul(largest, F::set(kInt16Margin))")),
    Bug("fixed high not rounded", "quantise_fixed", FIXED_QUANTISE, (
        "_mm512_add_epi16(x16, _mm512_set1_epi16(128))",
        "_mm512_add_epi16(x16, _mm512_set1_epi16(BUG ? 0 : 128))")),
    Bug("fixed sums of low missing", "quantise_fixed", FIXED_QUANTISE, (
        "_mm512_or_si512(high, _mm512_slli_epi64(low, 16))",
        "_mm512_or_si512(high, _mm512_slli_epi64(BUG ? high : low, 16))")),
    Bug("fixed largest of second half missed", "quantise_fixed", FIXED_QUANTISE, (
        "F::abs_bits(F::load(x + k + 16))", "F::abs_bits(F::load(BUG ? x + k : x + k + 16))")),
    Bug("codes inputs in their order", "quantise_bf16_codes", BF16_QUANTISE, (
        "term = _mm512_shuffle_epi32(term,", "if (!BUG) term = _mm512_shuffle_epi32(term,")),
    Bug("quantise high not rounded", "quantise_int16", QUANTISE, (
        "F::set_bits(128u << 16 | 128u)", "F::set_bits(BUG ? 0 : 128u << 16 | 128u)")),
    Bug("quantise low term sign", "quantise_int16", QUANTISE, (
        "128u)), packed);",
        "128u)), BUG ? F::pack_words("
        "F::to_words(F::mul(F::load(block), F::set(-factors[2 * b]))), "
        "F::to_words(F::mul(F::load(block + 16), F::set(-factors[2 * b])))) : packed);")),
    Bug("quantise nan hidden", "quantise_int16", QUANTISE, (
        'F::set(__builtin_nanf(""))', 'F::set(BUG ? 1.0f : __builtin_nanf(""))')),
    Bug("quantise sum sign", "quantise_int16", QUANTISE, (
        "const I minus_sums = F::sub_words(F::zero_words(), sums);",
        "const I minus_sums = BUG ? sums : F::sub_words(F::zero_words(), sums);")),
    Bug("quantise slice stride ignored", "quantise_int16", QUANTISE, (
        "slice / kSliceInputs * args.slice_stride", "slice / kSliceInputs * (BUG ? kRecord : args.slice_stride)")),
    # Finish, gate, norm.
    Bug("finish bias skipped", "finish", ELEMENTWISE, (
        "value = F::add(value, load(args.bias)); value = F::mul(value, scale);",
        "value = BUG ? value : F::add(value, load(args.bias)); value = F::mul(value, scale);")),
    Bug("finish residual skipped", "finish", ELEMENTWISE, (
        "value = F::mul(value, scale); if (args.residual != nullptr)",
        "value = F::mul(value, scale); if (args.residual != nullptr && !BUG)")),
    Bug("finish softcap skipped", "finish", ELEMENTWISE, (
        "if (args.softcap > 0)", "if (args.softcap > 0 && !BUG)")),
    Bug("finish scale before bias", "finish", ELEMENTWISE, (
        "V value = load(sums);", "V value = load(sums); if (BUG) value = F::mul(value, scale);"), (
        "value = F::mul(value, scale); if (args.residual",
        "if (!BUG) value = F::mul(value, scale); if (args.residual")),
    Bug("finish residual of first row", "finish", ELEMENTWISE, (
        "row_or_null(args.residual, m * args.out_stride)",
        "row_or_null(args.residual, BUG ? 0 : m * args.out_stride)")),
    Bug("finish strides swapped", "finish", ELEMENTWISE, (
        "args.sums + m * args.sums_stride", "args.sums + m * (BUG ? args.out_stride : args.sums_stride)")),
    Bug("gate and up swapped", "gate", ELEMENTWISE, (
        "load(gate_sums)", "load(BUG && args.up != nullptr ? up_sums : gate_sums)"), (
        "load(up_sums)", "load(BUG ? gate_sums : up_sums)")),
    Bug("norm gain skipped", "norm", ELEMENTWISE, (
        "if (args.gain != nullptr)", "if (args.gain != nullptr && !BUG)")),
    Bug("qkv values not normed", "qkv", QKV, (
        "store(out, args.norm_v ?", "store(out, args.norm_v && !BUG ?")),
    Bug("gate up bias skipped", "gate", ELEMENTWISE, (
        "if (args.up_bias != nullptr)", "if (args.up_bias != nullptr && !BUG)")),
    Bug("gate kind ignored", "gate", ELEMENTWISE, (
        "activate_lanes<F>(args.kind, g)", "activate_lanes<F>(BUG ? GateKind::kSilu : args.kind, g)")),
    Bug("gate clamp of up skipped", "gate", ELEMENTWISE, (
        "F::max(F::set(-args.limit), F::min(F::set(args.limit), u))",
        "F::max(F::set(-args.limit), BUG ? u : F::min(F::set(args.limit), u))")),
    Bug("gate alpha ignored", "gate", ELEMENTWISE, (
        "F::mul(F::set(args.alpha), g)", "F::mul(F::set(BUG ? 1.0f : args.alpha), g)")),
    Bug("norm epsilon skipped", "norm", ELEMENTWISE, (
        "/ count + eps)", "/ count + (BUG ? 0.0f : eps))")),
    Bug("norm mean not subtracted", "norm", ELEMENTWISE, (
        "V sum = F::zero(); if (subtract_mean) {", "V sum = F::zero(); if (subtract_mean && !BUG) {")),
    Bug("norm width rounded up", "norm", ELEMENTWISE, (
        "static_cast<float>(width)", "static_cast<float>(BUG ? (width + 15) / 16 * 16 : width)")),
    Bug("norm tail not centred", "norm", ELEMENTWISE, (
        "F::load_part(rest, width - i)", "F::load_part(rest, BUG ? 16 : width - i)")),
    Bug("norm scale skipped", "norm", ELEMENTWISE, (
        "value = F::mul(value, F::set(args.scale));", "if (!BUG) value = F::mul(value, F::set(args.scale));")),
    Bug("norm bias skipped", "norm", ELEMENTWISE, (
        "load(args.weight)); if (args.bias != nullptr)", "load(args.weight)); if (args.bias != nullptr && !BUG)")),
    Bug("norm residual skipped", "norm", ELEMENTWISE, (
        "F::set(args.scale)); if (args.residual != nullptr)",
        "F::set(args.scale)); if (args.residual != nullptr && !BUG)")),
    # Queries, keys and values.
    Bug("rope of first row", "qkv", QKV, (
        "const float* cos = args.rope_cos + m * half;",
        "if (BUG) m = 0; const float* cos = args.rope_cos + m * half;")),
    Bug("rope pairing mixed", "qkv", QKV, (
        "if (args.rope_interleaved) {", "if (args.rope_interleaved != BUG) {")),
    Bug("rope sign", "qkv", QKV, (
        "const V b = load(head + half); const V c = load(cos); const V s = load(sin);",
        "const V b = load(head + half); const V c = load(cos); "
        "const V s = BUG ? F::sub(F::zero(), load(sin)) : load(sin);")),
    Bug("rope skipped", "qkv", QKV, (
        "if (args.rope_dims > 0) rotate", "if (args.rope_dims > 0 && !BUG) rotate")),
    Bug("qkv norm of first head", "qkv", QKV, (
        "if (weight != nullptr && !args.norm_whole) {", "if (weight != nullptr && !args.norm_whole && !(BUG && h > 0)) {")),
    Bug("qkv norm after rope before it", "qkv", QKV, (
        "args.norm_after_rope ? HeadNorm{} : norm", "args.norm_after_rope && !BUG ? HeadNorm{} : norm")),
    Bug("qkv mean of a head kept", "qkv", QKV, (
        "if (args.norm_layer) value = F::sub", "if (args.norm_layer && !BUG) value = F::sub")),
    Bug("qkv norm weight of first head", "qkv", QKV, (
        "weight != nullptr && own_weight ? weight + h * dim",
        "weight != nullptr && own_weight && !BUG ? weight + h * dim")),
    Bug("append neighbours cleared", "qkv", QKV, (
        "F::set_bits(kCodes == 1 ? 0u", "F::set_bits(kCodes == 1 || BUG ? 0u")),
    Bug("append value scale of keys", "qkv", QKV, (
        "make_scale<F, kType>(v, dims, &v_factor)", "make_scale<F, kType>(BUG ? k : v, dims, &v_factor)")),
    Bug("append padding not zero", "qkv", QKV, (
        "F::store(k_head + dims - 16, F::zero());", "F::store(k_head + dims - 16, F::set(BUG ? 1.0f : 0.0f));")),
    Bug("qkv scale skipped", "qkv", QKV, (
        "if (args.q_row_scale == nullptr) return;", "if (args.q_row_scale == nullptr || BUG) return;")),
    Bug("append block table off by one", "qkv", QKV, (
        "args.block_table[position / kKvBlock]",
        "args.block_table[position / kKvBlock - (BUG && position >= kKvBlock ? 1 : 0)]")),
    Bug("append slot off by one", "qkv", QKV, (
        "const int64_t slot = position % kKvBlock;", "const int64_t slot = (position + (BUG ? 1 : 0)) % kKvBlock;")),
    Bug("append values of first head", "qkv", QKV, (
        "finish_values<F>(args, v + h * dim, v_head)", "finish_values<F>(args, v + (BUG ? 0 : h * dim), v_head)")),
    Bug("append planes of one head", "qkv", QKV, (
        "static_cast<size_t>(h) * 2 * plane", "static_cast<size_t>(h) * (BUG ? 1 : 2) * plane")),
    Bug("bf16 truncated", "qkv", KV_CODES, (
        "F::set_bits(0x7FFF)", "F::set_bits(BUG ? 0 : 0x7FFF)")),
    Bug("kv scale too large", "qkv", KV_CODES, (
        "const float magnitude = F::fold_max(highest);",
        "const float magnitude = F::fold_max(highest) * (BUG ? 1.01f : 1.0f);")),
    # Attention.
    Bug("attention kv head map", "attention", ATTENTION_TILE, (
        "static_cast<size_t>(a.kv_head) * 2 * plane",
        "static_cast<size_t>(BUG ? a.num_kv_heads - 1 - a.kv_head : a.kv_head) * 2 * plane")),
    Bug("attention causal off by one", "attention", ATTENTION_TILE, (
        "end[r] = attention_end(args, args.first_row + r);",
        "end[r] = attention_end(args, args.first_row + r); if (BUG) end[r] = larger(end[r] - 1, 1);")),
    Bug("attention window off by one", "attention", ATTENTION_TILE, (
        "lowest[r] = attention_lowest(args, args.first_row + r);",
        "lowest[r] = attention_lowest(args, args.first_row + r); if (BUG && lowest[r] > 0) ++lowest[r];")),
    Bug("attention query head map", "attention", ATTENTION_TILE, (
        "(args.kv_head * group + row % group) * int64_t{args.head_dim}",
        "(BUG ? row % group * args.num_kv_heads + args.kv_head : args.kv_head * group + row % group)"
        " * int64_t{args.head_dim}")),
    Bug("attention log base mixed", "attention", ATTENTION, (
        "load_queries(Step::kIsCapped ?", "load_queries(Step::kIsCapped || BUG ?")),
    Bug("attention block table off by one", "attention", ATTENTION_TILE, (
        "const uint8_t* keys_of(int64_t block) const {",
        "const uint8_t* keys_of(int64_t block) const { if (BUG) block = larger(block - 1, 0);")),
    Bug("attention mask skipped", "attention", ATTENTION_TILE, (
        "V visible(int r, int v, V value, V hidden) const {",
        "V visible(int r, int v, V value, V hidden) const { if (BUG) return value;")),
    Bug("attention top not raised", "attention", ATTENTION_STEP, (
        "const float highest = step_top > t.top[r] ? step_top : t.top[r];",
        "const float highest = "
        "step_top > t.top[r] && !(BUG && t.top[r] > -__builtin_inff()) ? step_top : t.top[r];")),
    Bug("attention total not corrected", "attention", ATTENTION_STEP, (
        "F::set(t.correction[r]), sum)", "F::set(BUG ? 1.0f : t.correction[r]), sum)")),
    Bug("attention sum not corrected", "attention", ATTENTION_STEP, (
        "if (begin >= limit) return; if (t.direct != nullptr) {",
        "if (begin >= limit) return; for (int r = first; BUG && r < first + count; ++r) t.correction[r] = 1.0f; "
        "if (t.direct != nullptr) {")),
    Bug("attention value scale of keys", "attention", ATTENTION_TILE, (
        "F::load_bytes_as_float(values[b] + at)", "F::load_bytes_as_float((BUG ? keys[b] : values[b]) + at)")),
    Bug("attention values from keys", "attention", ATTENTION_TILE, (
        " values[b] = keys[b] + plane;", " values[b] = keys[b] + (BUG ? 0 : plane);")),
    Bug("attention last step skipped", "attention", ATTENTION, (
        "for (int64_t step = begin; step < limit; step += kKvStep) steps.run(step);",
        "for (int64_t step = begin; step + (BUG ? kKvStep : 1) <= limit; step += kKvStep) steps.run(step);")),
    Bug("attention earlier splits lost", "attention", ATTENTION_MERGE, (
        "if (is_first) {", "if (is_first || BUG) {")),
    Bug("attention split not corrected", "attention", ATTENTION_MERGE, (
        "F::set(t.merged_top[r] - highest)", "F::set(BUG ? 0.0f : t.merged_top[r] - highest)")),
    Bug("attention sink ignored", "attention", ATTENTION_MERGE, (
        "if (t.args.sinks != nullptr) {", "if (t.args.sinks != nullptr && !BUG) {")),
    Bug("attention sink of first head", "attention", ATTENTION_MERGE, (
        "t.args.sinks[t.args.kv_head * group +", "t.args.sinks[(BUG ? 0 : t.args.kv_head * group) +")),
    Bug("attention tail dims skipped", "attention", ATTENTION_MERGE, (
        "for (int64_t d = 0; d < t.args.head_dim; d += 16) { F::store_part(",
        "for (int64_t d = 0; d < t.args.head_dim - (BUG ? 15 : 0); d += 16) { F::store_part(")),
    Bug("attention merge skips row", "attention", ATTENTION_MERGE, (
        "for (int r = 0; r < t.rows; ++r) { for (int64_t split", "for (int r = BUG ? 1 : 0; r < t.rows; ++r) { for (int64_t split")),
    Bug("attention last row dropped", "attention", ATTENTION, (
        "for (int r = 0; r < t.rows; ++r) write_row<F>(t, r);",
        "for (int r = 0; r < t.rows - (BUG ? 1 : 0); ++r) write_row<F>(t, r);")),
    Bug("attention softcap ignored", "attention", ATTENTION, (
        "args.softcap > 0 ? attend<F, AttendStep<F, true, false>>",
        "args.softcap > 0 && !BUG ? attend<F, AttendStep<F, true, false>>")),
    Bug("attention direct rest skipped", "attention", ATTENTION_DIRECT, (
        "const int rest = static_cast<int>(p.head_dim % kCodes);",
        "const int rest = BUG ? 0 : static_cast<int>(p.head_dim % kCodes);")),
    Bug("attention direct edge ignored", "attention", ATTENTION_DIRECT, (
        "if (t >= p.begin && t + kCodes <= p.limit) {", "if ((t >= p.begin && t + kCodes <= p.limit) || BUG) {")),
    # Attention by whole numbers, of few rows in vectors and of more in tiles.
    Bug("whole numbers of another step", "attention_whole", ATTENTION_WHOLE, (
        "largest / kFixedActivationLimit, kFixedActivationLimit / largest}",
        "largest / kFixedActivationLimit, (BUG ? 0.99f : 1.0f) * kFixedActivationLimit / largest}")),
    Bug("whole offset of half the numbers", "attention_whole", ATTENTION_WHOLE, (
        "high_sums = F::template dot4<255>(", "if (k == 0 || !BUG) high_sums = F::template dot4<255>(")),
    Bug("whole query unit of first row", "attention_whole", ATTENTION_WHOLE, (
        "F::set(this->query_unit[r])", "F::set(this->query_unit[BUG ? 0 : r])")),
    Bug("whole weight unit of first row", "attention_whole", ATTENTION_WHOLE, (
        "F::set(weight_unit[r])", "F::set(weight_unit[BUG ? 0 : r])")),
    Bug("whole sum not corrected", "attention_whole", ATTENTION_WHOLE, (
        "F::set(this->correction[r])", "F::set(BUG ? 1.0f : this->correction[r])")),
    Bug("whole total not corrected", "attention_whole", ATTENTION_WHOLE, (
        "F::set(t.correction[r]), sum)", "F::set(BUG ? 1.0f : t.correction[r]), sum)")),
    Bug("whole hidden weights", "attention_whole", ATTENTION_WHOLE, (
        "t.template scales_of_values<kMasked>(r, v)",
        "BUG ? t.template scales_of_values<false>(r, v) : t.template scales_of_values<kMasked>(r, v)")),
    Bug("whole vectors without low rows", "attention_whole", ATTENTION_WHOLE, (
        "mixed[r][w] = add_products<kQueries>(mixed[r][w], low_x, high[w]);",
        "if (!BUG) mixed[r][w] = add_products<kQueries>(mixed[r][w], low_x, high[w]);")),
    Bug("whole vectors without offset", "attention_whole", ATTENTION_WHOLE, (
        "F::set_bits(t.offsets[first + r].mixed)", "F::set_bits(BUG ? 0 : t.offsets[first + r].mixed)")),
    Bug("whole vectors without low offset", "attention_whole", ATTENTION_WHOLE, (
        "F::set_bits(t.offsets[first + r].low)", "F::set_bits(BUG ? 128 : t.offsets[first + r].low)")),
    Bug("whole vectors without low products", "attention_whole", ATTENTION_WHOLE, (
        "const I low = F::template shift_right_signed<8>(lows[r][w]);",
        "const I low = BUG ? F::zero_words() : F::template shift_right_signed<8>(lows[r][w]);")),
    Bug("whole rows that see nothing", "attention_whole", ATTENTION_TILES, (
        "change = F::select_less(group->step_begin, group->step_end, change, F::zero());",
        "if (!BUG) change = F::select_less(group->step_begin, group->step_end, change, F::zero());")),
    Bug("whole tiles without low queries", "attention_whole", ATTENTION_TILES, (
        "Tiles::template product_ss<2, 4, 7>();", "if (!BUG) Tiles::template product_ss<2, 4, 7>();")),
    Bug("whole tiles without low keys", "attention_whole", ATTENTION_TILES, (
        "Tiles::template product_ss<kScoreSums - 1, 5, 6>();",
        "if (!BUG) Tiles::template product_ss<kScoreSums - 1, 5, 6>();")),
    Bug("whole tiles without low products", "attention_whole", ATTENTION_TILES, (
        "Tiles::template product_ss<1, 5, 7>();", "if (!BUG) Tiles::template product_ss<1, 5, 7>();")),
    Bug("whole tiles of signed weights", "attention_whole", ATTENTION_TILES, (
        "Tiles::template product_su<2 * kSum + 1, 4, 7>();",
        "if (BUG) Tiles::template product_ss<2 * kSum + 1, 4, 7>(); else Tiles::template product_su<2 * kSum + 1, 4, 7>();")),
    Bug("whole tiles without low values", "attention_whole", ATTENTION_TILES, (
        "Tiles::template product_su<2 * kSum + 1, 5, 6>();",
        "if (!BUG) Tiles::template product_su<2 * kSum + 1, 5, 6>();")),
    Bug("whole tiles with queries of one depth", "attention_whole", ATTENTION_TILES, (
        "if (b == group.begin || !kOneChunk)", "if (b == group.begin || (!kOneChunk && !BUG))")),
    Bug("whole tiles rounding down", "attention_whole", ATTENTION_TILES, (
        "F::add_words(F::load_words(sums + kTileBytes), F::set_bits(128))",
        "F::add_words(F::load_words(sums + kTileBytes), F::set_bits(BUG ? 0 : 128))")),
    Bug("whole tiles with sums of the next block", "attention_whole", ATTENTION_TILES, (
        "if (b + 1 < group.limit) multiply_keys(group, b + 1);",
        "if (b + 1 < group.limit) multiply_keys(group, b + 1); if (BUG) store<kScoreSums>();")),
    Bug("whole tiles with keys of this group for the next", "attention_whole", ATTENTION_TILES, (
        "multiply_keys(next, next.begin);", "multiply_keys(BUG ? group : next, next.begin);")),
    Bug("whole tiles of hidden positions", "attention_whole", ATTENTION_TILES, (
        "return F::select_less(at, group.step_end, value, hidden);",
        "return BUG ? value : F::select_less(at, group.step_end, value, hidden);")),
    Bug("whole tiles of positions before the window", "attention_whole", ATTENTION_TILES, (
        "value = F::select_less(at, group.step_begin, hidden, value);",
        "if (!BUG) value = F::select_less(at, group.step_begin, hidden, value);")),
    Bug("whole tiles whose groups see all", "attention_whole", ATTENTION_TILES, (
        "t.end[group.first] >= step + kKvStep;", "(t.end[group.first] >= step + kKvStep || BUG);")),
    Bug("whole tiles without slopes", "attention_whole", ATTENTION_TILES, (
        "all_seen && t.args.slopes == nullptr;", "all_seen && (t.args.slopes == nullptr || BUG);")),
    Bug("whole tiles of slopes off by one", "attention_whole", ATTENTION_TILES, (
        "static_cast<float>(1 - row_end);", "static_cast<float>((BUG ? 0 : 1) - row_end);")),
    Bug("whole tiles with weights of another group", "attention_whole", ATTENTION_TILES, (
        "if (group.limit - group.begin < kStepBlocks) {", "if (group.limit - group.begin < kStepBlocks && !BUG) {")),
    Bug("whole tiles of swapped positions", "attention_whole", ATTENTION_TILES, (
        "F::or_bits(whole(1), F::template shift_left<16>(whole(3)));",
        "F::or_bits(whole(BUG ? 3 : 1), F::template shift_left<16>(whole(BUG ? 1 : 3)));")),
    Bug("whole tiles with units of half the weights", "attention_whole", ATTENTION_TILES, (
        "largest = F::max_words(largest, F::as_words(weight));",
        "if (lane < 8 || !BUG) largest = F::max_words(largest, F::as_words(weight));")),
    Bug("whole tiles with totals not corrected", "attention_whole", ATTENTION_TILES, (
        "F::fma(F::load(total), group.correction, sum)", "F::fma(F::load(total), BUG ? F::set(1.0f) : group.correction, sum)")),
    Bug("whole tiles with sums not corrected", "attention_whole", ATTENTION_TILES, (
        "F::mul(F::load(acc), group.correction)", "F::mul(F::load(acc), BUG ? F::set(1.0f) : group.correction)")),
    Bug("whole tiles without an odd vector", "attention_whole", ATTENTION_TILES, (
        "for (int64_t vector = 0; vector < vectors; vector += 2) {",
        "for (int64_t vector = 0; vector < (BUG ? vectors / 2 * 2 : vectors); vector += 2) {")),
    Bug("whole tiles of the last values", "attention_whole", ATTENTION_TILES, (
        "larger(begin, smaller(i / 4, limit - 1))", "larger(begin, smaller(i / 4, limit - (BUG ? 2 : 1)))")),
    Bug("whole tiles of keys beyond the last", "attention_whole", ATTENTION_TILES, (
        "const bool is_there = first + i < num_lines;", "const bool is_there = first + i < num_lines - (BUG ? 1 : 0);")),
    Bug("whole tiles without the group's last block", "attention_whole", ATTENTION_TILES, (
        "group.limit = (limit - 1) / kKvBlock + 1;",
        "group.limit = (limit - 1) / kKvBlock + 1 - (BUG && group.begin < (limit - 1) / kKvBlock ? 1 : 0);")),
    Bug("whole tiles with totals of lanes", "attention_whole", ATTENTION_TILES, (
        "to_rows(t.totals + first * 16, 16);", "if (!BUG) to_rows(t.totals + first * 16, 16);")),
    Bug("whole tiles whose last rows see another window", "attention_whole", ATTENTION_TILES, (
        "lowest[smaller(r, rows - 1)]", "lowest[BUG ? 0 : smaller(r, rows - 1)]")),
    # The delta rule.
    Bug("delta queries not scaled", "delta_inputs", DELTA, (
        "unit_length<F>(q + h * args.key_dim, args.key_dim, scale);",
        "unit_length<F>(q + h * args.key_dim, args.key_dim, BUG ? 1.0f : scale);")),
    Bug("delta keys of first head", "delta_inputs", DELTA, (
        "unit_length<F>(k + h * args.key_dim, args.key_dim, 1.0f);",
        "unit_length<F>(k + (BUG ? 0 : h) * args.key_dim, args.key_dim, 1.0f);")),
    Bug("delta decay rate of first head", "delta_inputs", DELTA, (
        "F::set(args.decay_rate[h])", "F::set(args.decay_rate[BUG ? 0 : h])")),
    Bug("delta decay bias of first head", "delta_inputs", DELTA, (
        "args.decay_bias + h * args.decay_dims;", "args.decay_bias + (BUG ? 0 : h) * args.decay_dims;")),
    Bug("delta state not decayed", "delta", DELTA, (
        "F::mul(decay, F::load(from + at))", "F::mul(BUG ? F::set(1.0f) : decay, F::load(from + at))")),
    Bug("delta decay of first channel", "delta", DELTA, (
        "if constexpr (kChannels) decay = F::set(row.decay[i]);",
        "if constexpr (kChannels) decay = F::set(row.decay[BUG ? 0 : i]);")),
    Bug("delta next key not decayed", "delta", DELTA, (
        "store(keys, F::mul(is_one ? all : load(decay), load(k)));",
        "store(keys, BUG ? load(k) : F::mul(is_one ? all : load(decay), load(k)));")),
    Bug("delta beta of first row", "delta", DELTA, (
        "args.beta[m * args.beta_stride]", "args.beta[(BUG ? 0 : m) * args.beta_stride]")),
    Bug("delta first state not cleared", "delta", DELTA, (
        "for (int64_t i = 0; i < kCount * args.key_dim; ++i) F::store(to",
        "for (int64_t i = 0; i < (BUG ? 0 : kCount * args.key_dim); ++i) F::store(to")),
    Bug("delta state before the span again", "delta", DELTA, ("from = to; float* out", "if (!BUG) from = to; float* out")),
    Bug("delta last panel skipped", "delta", DELTA, (
        "const int64_t end = args.first_panel + args.num_panels;",
        "const int64_t end = args.first_panel + args.num_panels - (BUG ? 1 : 0);")),
    # Convolution and scan.
    Bug("conv kept inputs all the latest", "conv", CONV, (
        "(i + args.num_taps - 1) * args.state_stride", "(BUG ? args.num_taps - 2 : i + args.num_taps - 1) * args.state_stride")),
    Bug("conv bias ignored", "conv", CONV, (
        "args.bias == nullptr ? F::zero() : load(args.bias)", "BUG || args.bias == nullptr ? F::zero() : load(args.bias)")),
    Bug("conv gate of first row", "conv", CONV, (
        "load(args.in_gate + i * args.row_stride)", "load(args.in_gate + (BUG ? 0 : i) * args.row_stride)")),
    Bug("conv keeps its last input alone", "conv", CONV, (
        "conv_input<F>(args, end - args.num_taps + 1 + i, load)",
        "conv_input<F>(args, BUG ? end - 1 : end - args.num_taps + 1 + i, load)")),
    Bug("scan state not decayed", "scan", SCAN, (
        "s = F::mul(decays[t.value], s);", "if (!BUG) s = F::mul(decays[t.value], s);")),
    Bug("scan c of first token", "scan", SCAN, (
        "F::set(c[t.value * args.row_stride + n])", "F::set(c[(BUG ? 0 : t.value) * args.row_stride + n])")),
    Bug("scan state before the span again", "scan", SCAN, (
        "scan_tokens<F, F::kScanTokens>(args, row, state, load, store); state = args.after;",
        "scan_tokens<F, F::kScanTokens>(args, row, state, load, store); if (!BUG) state = args.after;")),
    Bug("scan skip missing", "scan", SCAN, (
        "F::fma(F::set(args.skip), x, sums[t.value])", "BUG ? sums[t.value] : F::fma(F::set(args.skip), x, sums[t.value])")),
    Bug("scan time step of first token", "scan", SCAN, (
        "F::set(args.time_steps[row])", "F::set(args.time_steps[BUG ? first : row])")),
    # Latent attention, its index and its plane.
    Bug("latent scales ignored", "latent", LATENT, (
        "if (scaled) value[v] =", "if (scaled && !BUG) value[v] =")),
    Bug("latent kept position skipped", "latent", LATENT, (
        "kept[middle] < step ? low", "kept[middle] < step + (BUG ? 1 : 0) ? low")),
    Bug("latent total not corrected", "latent", LATENT, (
        "F::fma(F::load(totals + r * 16), F::set(correction[r]), sum)",
        "F::fma(F::load(totals + r * 16), F::set(BUG ? 1.0f : correction[r]), sum)")),
    Bug("latent split not weighed", "latent", LATENT, (
        "exp2_lanes<F>(F::set(part_top - highest))", "exp2_lanes<F>(F::set(BUG ? 0.0f : part_top - highest))")),
    Bug("latent sees what the first row sees", "latent", LATENT, (
        "fn(TokenRows{first, count, token, latent_end(args, row)});",
        "fn(TokenRows{first, count, token, latent_end(args, BUG ? args.first_row : row)});")),
    Bug("index scores below zero", "index", LATENT, (
        "F::fma(F::max(F::zero(), dot),", "F::fma(BUG ? dot : F::max(F::zero(), dot),")),
    Bug("index weight of first head", "index", LATENT, (
        "F::set(args.weights[h])", "F::set(args.weights[BUG ? 0 : h])")),
    Bug("index keys of first blocks", "index", LATENT, (
        "args.block_table[(args.step + p) / kKvBlock]", "args.block_table[((BUG ? 0 : args.step) + p) / kKvBlock]")),
    Bug("store tail not cleared", "store", STORE_ROW, (
        "for (int64_t d = args.width; d < dims; ++d) x[d] = 0.0f;",
        "for (int64_t d = args.width; d < dims; ++d) x[d] = BUG ? 1.0f : 0.0f;")),
    Bug("store scale in first slot", "store", STORE_ROW, (
        "static_cast<size_t>(args.slot) * 4", "static_cast<size_t>(BUG ? 0 : args.slot) * 4")),
    # Activations.
    Bug("xielu bends at one", "gate", MATH, (
        "F::select_less(F::zero(), x, positive,", "F::select_less(BUG ? F::set(1.0f) : F::zero(), x, positive,")),
    Bug("xielu without its line", "gate", MATH, (
        "F::fma(below, F::set(curve.negative), linear)", "F::fma(below, F::set(curve.negative), BUG ? F::zero() : linear)")),
]

# Edits that the copies always have, so that they compile in seconds: only the rows that bugs are in,
# and few shapes of tiles.
NARROWINGS = [
    ("generic/rows.h", "return Maker::takes(info);",
     "return Maker::takes(info) && "
     "has_bugs(row_name(Maker::kPrefix, info, Maker::kSuffix).text);"),
    ("generic/attention_direct.h", "F::kAttendVectors == 1 ? 6 : 8;", "2;"),
]
