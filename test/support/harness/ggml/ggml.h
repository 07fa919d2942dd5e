/* Declares the functions of ggml that the harness calls. The library in node-llama-cpp comes without headers. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct ggml_context ggml_context;
enum ggml_op : int {};
struct ggml_tensor;
typedef struct ggml_cgraph ggml_cgraph;
typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_F16 = 1, GGML_TYPE_I32 = 26 };
enum ggml_status { GGML_STATUS_SUCCESS = 0 };
enum { GGML_ROPE_TYPE_NORMAL = 0, GGML_ROPE_TYPE_NEOX = 2, GGML_ROPE_TYPE_MROPE = 8, GGML_ROPE_TYPE_VISION = 24, GGML_ROPE_TYPE_IMROPE = 40 };
struct ggml_tensor {
  enum ggml_type type;
  struct ggml_backend_buffer *buffer;
  int64_t ne[4];
  size_t nb[4];
  enum ggml_op op;
  int32_t op_params[16];
  int32_t flags;
  struct ggml_tensor *src[10];
  struct ggml_tensor *view_src;
  size_t view_offs;
  void *data;
  char name[64];
  void *extra;
  char padding[8];
};
typedef struct ggml_tensor ggml_tensor;
struct ggml_init_params { size_t mem_size; void *mem_buffer; bool no_alloc; };
ggml_context *ggml_init(struct ggml_init_params params);
void ggml_free(ggml_context *ctx);
ggml_tensor *ggml_new_tensor_1d(ggml_context *ctx, enum ggml_type type, int64_t ne0);
ggml_tensor *ggml_view_4d(ggml_context *ctx, ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3,
                          size_t nb1, size_t nb2, size_t nb3, size_t offset);
size_t ggml_nbytes(const ggml_tensor *tensor);
int64_t ggml_nelements(const ggml_tensor *tensor);
int ggml_n_dims(const ggml_tensor *tensor);
const char *ggml_op_name(enum ggml_op op);
ggml_tensor *ggml_set_name(ggml_tensor *tensor, const char *name);
ggml_tensor *ggml_new_tensor_2d(ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1);
ggml_tensor *ggml_get_rows(ggml_context *ctx, ggml_tensor *a, ggml_tensor *b);
ggml_tensor *ggml_reshape_3d(ggml_context *ctx, ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2);
ggml_tensor *ggml_permute(ggml_context *ctx, ggml_tensor *a, int axis0, int axis1, int axis2, int axis3);
int ggml_graph_n_nodes(ggml_cgraph *graph);
ggml_tensor *ggml_graph_node(ggml_cgraph *graph, int i);
ggml_tensor *ggml_mul(ggml_context *ctx, ggml_tensor *a, ggml_tensor *b);
ggml_tensor *ggml_rms_norm(ggml_context *ctx, ggml_tensor *a, float eps);
#define ROPE_SCALING int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast, float beta_slow
#define ROPE_TENSORS ggml_context *ctx, ggml_tensor *a, ggml_tensor *b, ggml_tensor *c, int n_dims
ggml_tensor *ggml_rope_ext(ROPE_TENSORS, int mode, ROPE_SCALING);
ggml_tensor *ggml_rope_ext_back(ROPE_TENSORS, int mode, ROPE_SCALING);
ggml_tensor *ggml_rope_multi(ROPE_TENSORS, int sections[4], int mode, ROPE_SCALING);
ggml_tensor *ggml_rope_multi_back(ROPE_TENSORS, int sections[4], int mode, ROPE_SCALING);
ggml_cgraph *ggml_new_graph(ggml_context *ctx);
void ggml_build_forward_expand(ggml_cgraph *graph, ggml_tensor *tensor);
void ggml_backend_load_all(void);
ggml_backend_t ggml_backend_init_by_name(const char *name, const char *params);
ggml_backend_t ggml_backend_init_best(void);
bool ggml_backend_supports_op(ggml_backend_t backend, const ggml_tensor *op);
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(ggml_context *ctx, ggml_backend_t backend);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);
void ggml_backend_tensor_set(ggml_tensor *tensor, const void *data, size_t offset, size_t size);
void ggml_backend_tensor_get(const ggml_tensor *tensor, void *data, size_t offset, size_t size);
enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, ggml_cgraph *graph);
#ifdef __cplusplus
}
#endif
