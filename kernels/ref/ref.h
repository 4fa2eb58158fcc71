// The functions of the reference table, one file per group of operations. What they compute is
// specified in kernels/kernels.h; speed is no aim here.
#pragma once

#include "kernels/kernels.h"

namespace qinfer::kernels::ref {

void MatmulInt8(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end,
                const Activations& x, uint32_t tokens, float* out, size_t out_stride,
                void* scratch);
void MatmulFloat(const Matrix& matrix, uint32_t panel_begin, uint32_t panel_end, const float* x,
                 size_t x_stride, uint32_t tokens, float* out, size_t out_stride, void* scratch);
void DecodeRow(const Matrix& matrix, uint32_t row, float* out);
void DecodePanel(const Matrix& matrix, uint32_t panel, float* out);

void Quantize(const float* x, uint32_t cols, uint32_t token, const Activations& out);
void QuantizeStatic(const float* x, uint32_t cols, uint32_t token, float scale,
                    const Activations& out);
void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* out);
void Add(float* x, const float* y, size_t n);
void Scale(float* x, float by, size_t n);
void Gated(Activation activation, const float* gate, const float* up, size_t n, float* out);
void Softcap(float* x, float cap, size_t n);
void Rope(float* head, const float* cos, const float* sin, uint32_t rope_dims, bool interleaved);
uint32_t Argmax(const float* x, size_t n);
float ExpSum(const float* x, size_t n, float* max);
void ExpShift(const float* x, float shift, size_t n, float* out);
bool PanelMaxima(const float* x, size_t n, float* maxima);

void WriteK(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim);
void WriteV(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim);
void Attention(const AttentionArgs& args);

// 16 virtual lanes and the fixed tree.
inline float Tree(float* lanes) {
  for (uint32_t width = 8; width > 0; width /= 2)
    for (uint32_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

// Codes of `count` values at a shared scale; returns the scale (NaN if a value is not finite).
float QuantizeBlock(const float* x, uint32_t count, int8_t* codes);

}  // namespace qinfer::kernels::ref
