#include <vector>
#include "acl/acl.h"
#include "aclnnop/aclnn_apply_rotary_pos_emb_v2.h"
#include "aclnnop/aclnn_rotary_position_embedding.h"
#include "rope.h"

static bool v2; /* aclnnApplyRotaryPosEmbV2 instead of aclnnRotaryPositionEmbedding */
static aclrtStream stream;

/* A failure of the case, which verify reports, and not a skip. */
static void check(aclError status, const char *call) {
  if (status != ACL_SUCCESS) { fprintf(stderr, "%s: status %d: %s\n", call, (int)status, aclGetRecentErrMsg()); exit(1); }
}

/* A dense tensor on the device; the caller frees both. */
struct Device {
  void *data = nullptr;
  aclTensor *tensor = nullptr;
  Device(const std::vector<uint8_t> &bytes, const std::vector<int64_t> &shape, aclDataType type) {
    check(aclrtMalloc(&data, bytes.size(), ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check(aclrtMemcpy(data, bytes.size(), bytes.data(), bytes.size(), ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t n = shape.size() - 1; n > 0; n--) strides[n - 1] = strides[n] * shape[n];
    tensor = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, shape.data(), shape.size(), data);
  }
  ~Device() { aclDestroyTensor(tensor); aclrtFree(data); }
};

/* PASTE YOUR CALL HERE: it reads r->x and writes r->y. Returns NULL, or why it cannot do this case (a skip). */
static const char *rope(const Rope *r) {
  if (r->weight || r->rows) return "no norm and no cache in this harness";
  if (r->xType == F64) return "aclnn takes f32, f16 and bf16";
  if (r->pairing == INTERLEAVED_TO_HALF) return "mode 3 (half-interleave) is not in this harness";
  const size_t size = r->xType == F32 ? 4 : 2, dim = (size_t)r->rotaryDim;
  const long tokens = r->batch * r->seq, pairs = r->rotaryDim / 2;
  const aclDataType type = r->xType == F32 ? ACL_FLOAT : r->xType == F16 ? ACL_FLOAT16 : ACL_BF16;
  /* The window that rotates, [tokens, heads, rotaryDim], and tables of its width and dtype, [tokens, 1, rotaryDim]. */
  std::vector<uint8_t> x((size_t)(tokens * r->heads) * dim * size), key((size_t)tokens * dim * size), cosine(key.size()), sine(key.size());
  auto row = [&](const long *stride, long token, long h) {
    return (size_t)(token / r->seq * stride[0] + token % r->seq * stride[1] + h * stride[2]) * size;
  };
  const size_t skipped = (size_t)r->rotaryOffset * size, whole = (size_t)r->headDim * size;
  for (long t = 0; t < tokens; t++) {
    for (long h = 0; h < r->heads; h++) {
      const char *from = (const char *)r->x + row(r->xStride, t, h);
      memcpy((char *)r->y + row(r->yStride, t, h), from, whole);
      memcpy(&x[(size_t)(t * r->heads + h) * dim * size], from + skipped, dim * size);
    }
    for (long j = 0; j < pairs; j++) {
      const double angle = (double)r->positions[r->axis[j] * tokens + t] * r->invFreq[j];
      const double c = cos(angle) * r->magnitude, s = sin(angle) * r->magnitude * (r->backward ? -1 : 1);
      for (int member = 0; member < 2; member++) {
        const long i = t * r->rotaryDim + (r->pairing == HALF ? j + member * pairs : 2 * j + member);
        store(cosine.data(), r->xType, i, c);
        store(sine.data(), r->xType, i, s);
      }
    }
  }
  std::vector<int64_t> shape = {r->batch, r->seq, r->heads, r->rotaryDim}, tableShape = {r->batch, r->seq, 1, r->rotaryDim};
  if (v2) shape = {tokens, r->heads, r->rotaryDim}, tableShape = {tokens, 1, r->rotaryDim}; /* TND */
  Device input(x, shape, type), output(x, shape, type), other(key, tableShape, type);
  Device cosTable(cosine, tableShape, type), sinTable(sine, tableShape, type);
  uint64_t workspaceSize = 0;
  void *workspace = nullptr;
  aclOpExecutor *executor = nullptr;
  static char mode[16], why[128];
  snprintf(mode, sizeof mode, "%s", r->pairing == HALF ? "half" : "interleave");
  const aclnnStatus status =
      v2 ? aclnnApplyRotaryPosEmbV2GetWorkspaceSize(output.tensor, other.tensor, cosTable.tensor, sinTable.tensor, 4, mode, &workspaceSize, &executor)
         : aclnnRotaryPositionEmbeddingGetWorkspaceSize(input.tensor, cosTable.tensor, sinTable.tensor, r->pairing == HALF ? 0 : 1,
                                                        output.tensor, &workspaceSize, &executor);
  if (status != ACL_SUCCESS) { /* it does not take these shapes or this dtype */
    snprintf(why, sizeof why, "the operator refuses these arguments: status %d", (int)status);
    return why;
  }
  if (workspaceSize > 0) check(aclrtMalloc(&workspace, workspaceSize, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  check((v2 ? aclnnApplyRotaryPosEmbV2 : aclnnRotaryPositionEmbedding)(workspace, workspaceSize, executor, stream), "the operator");
  check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
  check(aclrtMemcpy(x.data(), x.size(), output.data, x.size(), ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
  if (workspace) aclrtFree(workspace);
  for (long n = 0; n < tokens * r->heads; n++)
    memcpy((char *)r->y + row(r->yStride, n / r->heads, n % r->heads) + skipped, &x[(size_t)n * dim * size], dim * size);
  return NULL;
}

/* The program's first argument: the device's number; v2:0 calls aclnnApplyRotaryPosEmbV2. */
static const char *openDevice(const char *name) {
  v2 = name && !strncmp(name, "v2", 2);
  const char *number = !name ? "0" : v2 ? (name[2] ? name + 3 : "0") : name;
  if (aclInit(NULL) != ACL_SUCCESS || aclrtSetDevice(atoi(number)) != ACL_SUCCESS || aclrtCreateStream(&stream) != ACL_SUCCESS)
    return "CANN has no such device here";
  return NULL;
}

#include "protocol.h"
