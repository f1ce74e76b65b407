// The list of packed storage layouts: a layout is one line here. The enum (kernels.h), the table
// (layouts.h), the rows of every unit with their names (generic/rows.h), the choice of a layout for
// a stored weight (pack.cpp, pack_groups.cpp) and the samples of verification derive from it. What
// a new kind of arithmetic needs besides: generic/weights.h and reference/weights.h read it,
// block_fields.cpp takes apart the blocks of a new file format.
//
// Columns: name in the enum; name of the bytes, whose part before "x16" is in the names of rows;
// name of the checkpoint format that it keeps (base/dtype.cpp, or one of safetensors' groups); then
// those of LayoutInfo from block_inputs on. Order: the enum's, and where several layouts can hold a
// weight by groups, the first one that does is taken.
#pragma once

// clang-format off
#define HEADRACE_LAYOUTS(LAYOUT) \
  /*                                              inputs bytes sc mn sb lo hi mn zr lo hi zero t zb sp sf */ \
  LAYOUT(F32,         "f32x16",        "F32",          1,   64, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0, 0, 0, 0, 0) \
  LAYOUT(F16,         "f16x16x2",      "F16",          2,   64, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0, 0, 0, 0, 0) \
  LAYOUT(BF16,        "bf16x16x2",     "BF16",         2,   64, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0, 0, 0, 0, 0) \
  LAYOUT(Q8_0,        "q8_0x16",       "Q8_0",        32,  544, 2, 0, 0, 0, 0, 0, 0, 8, 0, 128, 0, 0, 0, 0) \
  LAYOUT(Q4_0,        "q4_0x16",       "Q4_0",        32,  288, 2, 0, 0, 0, 0, 0, 0, 4, 0,   8, 0, 0, 0, 0) \
  LAYOUT(Q4_1,        "q4_1x16",       "Q4_1",        32,  320, 2, 2, 0, 0, 0, 0, 0, 4, 0,   0, 0, 0, 0, 0) \
  LAYOUT(Q5_0,        "q5_0x16",       "Q5_0",        32,  352, 2, 0, 0, 0, 0, 0, 0, 4, 1,  16, 0, 0, 0, 0) \
  LAYOUT(Q5_1,        "q5_1x16",       "Q5_1",        32,  384, 2, 2, 0, 0, 0, 0, 0, 4, 1,   0, 0, 0, 0, 0) \
  LAYOUT(Q4K,         "q4_kx16",       "Q4_K",       256, 2304, 2, 2, 8, 4, 2, 1, 0, 4, 0,   0, 0, 0, 0, 0) \
  LAYOUT(Q5K,         "q5_kx16",       "Q5_K",       256, 2816, 2, 2, 8, 4, 2, 1, 0, 4, 1,   0, 0, 0, 0, 0) \
  LAYOUT(Q6K,         "q6_kx16",       "Q6_K",       256, 3360, 2, 0,16, 8, 0, 0, 0, 4, 2,  32, 0, 0, 0, 0) \
  LAYOUT(Q2K,         "q2_kx16",       "Q2_K",       256, 1344, 2, 2,16, 4, 0, 1, 0, 2, 0,   0, 0, 0, 0, 0) \
  LAYOUT(Q3K,         "q3_kx16",       "Q3_K",       256, 1760, 2, 0,16, 4, 2, 0,32, 2, 1,   4, 0, 0, 0, 0) \
  LAYOUT(IQ4NL,       "iq4_nlx16",     "IQ4_NL",      32,  288, 2, 0, 0, 0, 0, 0, 0, 4, 0,   0, 1, 0, 0, 0) \
  LAYOUT(IQ4XS,       "iq4_xsx16",     "IQ4_XS",     256, 2208, 2, 0, 8, 4, 2, 0,32, 4, 0,   0, 1, 0, 0, 0) \
  LAYOUT(MXFP4,       "mxfp4x16",      "MXFP4",       32,  272, 1, 0, 0, 0, 0, 0, 0, 4, 0,   0, 2, 0, 0, 0) \
  LAYOUT(Int2G128,    "int2_g128x16",  "INT2",       128,  560, 2, 0, 0, 0, 0, 0, 0, 2, 0,   0, 0, 1, 1, 0) \
  LAYOUT(Int2G64,     "int2_g64x16",   "INT2",        64,  304, 2, 0, 0, 0, 0, 0, 0, 2, 0,   0, 0, 1, 1, 0) \
  LAYOUT(Int2G32,     "int2_g32x16",   "INT2",        32,  176, 2, 0, 0, 0, 0, 0, 0, 2, 0,   0, 0, 1, 1, 0) \
  LAYOUT(Int4G128,    "int4_g128x16",  "INT4",       128, 1072, 2, 0, 0, 0, 0, 0, 0, 4, 0,   0, 0, 1, 1, 0) \
  LAYOUT(Int4G64,     "int4_g64x16",   "INT4",        64,  560, 2, 0, 0, 0, 0, 0, 0, 4, 0,   0, 0, 1, 1, 0) \
  LAYOUT(Int4G32,     "int4_g32x16",   "INT4",        32,  304, 2, 0, 0, 0, 0, 0, 0, 4, 0,   0, 0, 1, 1, 0) \
  LAYOUT(Int4WideG128,"int4w_g128x16", "INT4",       128, 1104, 4, 0, 0, 0, 0, 0, 0, 4, 0,   0, 0, 1, 0, 0) \
  LAYOUT(Int4WideG64, "int4w_g64x16",  "INT4",        64,  592, 4, 0, 0, 0, 0, 0, 0, 4, 0,   0, 0, 1, 0, 0) \
  LAYOUT(Int4WideG32, "int4w_g32x16",  "INT4",        32,  336, 4, 0, 0, 0, 0, 0, 0, 4, 0,   0, 0, 1, 0, 0) \
  LAYOUT(Int8G128,    "int8_g128x16",  "INT8",       128, 2128, 4, 0, 0, 0, 0, 0, 0, 8, 0,   0, 0, 1, 0, 0) \
  LAYOUT(Int8G64,     "int8_g64x16",   "INT8",        64, 1104, 4, 0, 0, 0, 0, 0, 0, 8, 0,   0, 0, 1, 0, 0) \
  LAYOUT(Int8G32,     "int8_g32x16",   "INT8",        32,  592, 4, 0, 0, 0, 0, 0, 0, 8, 0,   0, 0, 1, 0, 0) \
  LAYOUT(NVFP4,       "nvfp4x16",      "NVFP4",      256, 2368, 4, 0,16, 8, 0, 0, 0, 4, 0,   0, 2, 0, 0, 1) \
  LAYOUT(E4M3,        "e4m3x16",       "F8_E4M3",    128, 2112, 4, 0, 0, 0, 0, 0, 0, 8, 0,   0, 3, 0, 0, 0) \
  LAYOUT(E5M2,        "e5m2x16",       "F8_E5M2",    128, 2112, 4, 0, 0, 0, 0, 0, 0, 8, 0,   0, 4, 0, 0, 0)
// clang-format on
