#include <vector>
#include "ggml.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "rope.h"

static ggml_backend_t backend;

static double number(const char *json, const char *key, double otherwise); /* a number of the spec, by its key */
static char *after(const char *json, const char *key);

/* PASTE YOUR CALL HERE: it reads r->x and writes r->y. Returns NULL, or why it cannot do this case (a skip). */
static const char *rope(const Rope *r) {
  if (r->xType != F32 && r->xType != F16) return "ggml_rope_ext takes f32 and f16";
  if (r->rows) return "no cache in this harness";
  if (r->rotaryOffset) return "no ggml_rope_set_offset in this harness";
  if (r->pairing == INTERLEAVED_TO_HALF) return "ggml has no interleaved-to-half";
  /* Linear scaling and YaRN as ggml computes them; other frequencies as freq_factors, as llama.cpp does for llama3. */
  const char *scaling = after(r->json, "scaling"), *axes = after(r->json, "axes");
  const bool linear = !strcmp(r->scaling, "linear"), vision = axes && strstr(axes, "\"vision\"");
  const bool yarn = !strcmp(r->scaling, "yarn") && !strstr(scaling, "\"truncate\":false");
  const float ext = yarn ? (float)number(scaling, "extFactor", 1) : 0, base = (float)r->base;
  const float scale = linear || yarn ? (float)(1 / number(scaling, "factor", 1)) : 1;
  const float attn = (float)(r->magnitude / (ext != 0 ? 1 - 0.1 * log(scale) : 1));
  const int context = yarn ? (int)number(scaling, "originalContext", 0) : 0;
  const float fast = (float)number(yarn ? scaling : NULL, "betaFast", 32), slow = (float)number(yarn ? scaling : NULL, "betaSlow", 1);
  int mode = r->pairing == HALF ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, sections[4] = {0};
  if (axes) {
    const bool imrope = strstr(axes, "\"interleaved-ggml\""), sequential = strstr(axes, "\"sections\",");
    if (!imrope && !sequential && !vision) return "ggml gives the last pairs to another axis";
    if (vision && (strcmp(r->scaling, "none") || after(r->json, "freqFactors"))) return "a vision tower with scaling is not in this harness";
    mode = vision ? GGML_ROPE_TYPE_VISION : imrope ? GGML_ROPE_TYPE_IMROPE : GGML_ROPE_TYPE_MROPE;
    char *at = strstr((char *)axes, "\"sections\":[") + strlen("\"sections\":[");
    for (int n = 0; n < 4 && *at != ']'; n++, at += *at == ',') sections[n] = (int)strtol(at, &at, 10);
  }
  const long pairs = r->rotaryDim / 2;
  const int dims = (int)(vision ? pairs : r->rotaryDim);
  std::vector<float> factors((size_t)pairs, 1.0f);
  const char *given = after(r->json, "freqFactors");
  for (long j = 0; j < pairs && !vision; j++) {
    if (!linear && !yarn) factors[(size_t)j] = (float)(pow(base, -2.0 * (double)j / (double)r->rotaryDim) / r->invFreq[j]);
    else if (given) factors[(size_t)j] = strtof(given + 1, (char **)&given);
  }

  const ggml_type type = r->xType == F16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
  const size_t size = r->xType == F16 ? 2 : 4, all = (size_t)(r->heads * r->seq * r->headDim);
  const size_t nb[3] = {(size_t)r->xStride[2] * size, (size_t)r->xStride[1] * size, all * size};
  ggml_context *ctx = ggml_init({1 << 20, nullptr, true});
  ggml_tensor *flat = ggml_new_tensor_1d(ctx, type, (int64_t)all); /* one sequence, as it lies: strided where heads come first */
  ggml_tensor *a = ggml_view_4d(ctx, flat, r->headDim, r->heads, r->seq, 1, nb[0], nb[1], nb[2], 0);
  ggml_tensor *pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, r->seq * (axes ? 4 : 1));
  ggml_tensor *ff = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, pairs), *weight = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, r->headDim);
  if (r->weight) a = ggml_mul(ctx, ggml_rms_norm(ctx, a, (float)r->eps), weight);
  ggml_tensor *y =
      axes ? (r->backward ? ggml_rope_multi_back : ggml_rope_multi)(ctx, a, pos, ff, dims, sections, mode, context, base, scale, ext, attn, fast, slow)
           : (r->backward ? ggml_rope_ext_back : ggml_rope_ext)(ctx, a, pos, ff, dims, mode, context, base, scale, ext, attn, fast, slow);
  ggml_cgraph *graph = ggml_new_graph(ctx);
  ggml_build_forward_expand(graph, y);
  const char *why = r->weight && r->xType != F32          ? "the norm of this harness is in f32"
                    : !ggml_backend_supports_op(backend, y) ? "the backend does not support this op"
                                                            : NULL;
  ggml_backend_buffer_t buffer = why ? nullptr : ggml_backend_alloc_ctx_tensors(ctx, backend);
  std::vector<int32_t> positions((size_t)(r->seq * (axes ? 4 : 1)));
  std::vector<uint8_t> out(all * size);
  for (long b = 0; b < r->batch && !why; b++) {
    for (size_t n = 0; n < positions.size(); n++) { /* [axes, seq] */
      const long axis = (long)n / r->seq, used = number(after(r->json, "rope"), "numAxes", 1) > (double)axis;
      positions[n] = used ? (int32_t)r->positions[(axis * r->batch + b) * r->seq + (long)n % r->seq] : 0;
    }
    ggml_backend_tensor_set(flat, (const char *)r->x + (size_t)(b * r->xStride[0]) * size, 0, all * size);
    ggml_backend_tensor_set(pos, positions.data(), 0, positions.size() * 4);
    ggml_backend_tensor_set(ff, factors.data(), 0, factors.size() * 4);
    if (r->weight) ggml_backend_tensor_set(weight, r->weight, 0, (size_t)r->headDim * 4);
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) why = "ggml_backend_graph_compute failed";
    ggml_backend_tensor_get(y, out.data(), 0, out.size()); /* dense: [seq, heads, headDim] */
    for (long row = 0; row < r->seq * r->heads; row++)
      memcpy((char *)r->y + (size_t)(b * r->yStride[0] + row / r->heads * r->yStride[1] + row % r->heads * r->yStride[2]) * size,
             &out[(size_t)(row * r->headDim) * size], (size_t)r->headDim * size);
  }
  if (buffer) ggml_backend_buffer_free(buffer);
  ggml_free(ctx);
  return why;
}

/* The program's first argument: a device such as CUDA0, Vulkan0, CANN0, CPU; the best one without it. */
static const char *openDevice(const char *name) {
  ggml_backend_load_all();
  backend = name ? ggml_backend_init_by_name(name, NULL) : ggml_backend_init_best();
  return backend ? NULL : "ggml has no such device here";
}

#include "protocol.h"
