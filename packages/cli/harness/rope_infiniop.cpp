#include <cstddef>
#include <vector>
#include "infiniop/handle.h"
#include "infiniop/ops/rope.h"
#include "infiniop/tensor_descriptor.h"
#include "infinirt.h"
#include "rope.h"

static infiniopHandle_t handle;

/* A failure of the case, which verify reports, and not a skip. */
static void check(infiniStatus_t status, const char *call) {
  if (status != INFINI_STATUS_SUCCESS) { fprintf(stderr, "%s: status %d\n", call, (int)status); exit(1); }
}

/* A dense tensor on the device. */
struct Device {
  void *data = nullptr;
  infiniopTensorDescriptor_t desc = nullptr;
  Device(const void *bytes, size_t size, const std::vector<size_t> &shape, infiniDtype_t dtype) {
    check(infinirtMalloc(&data, size), "infinirtMalloc");
    check(infinirtMemcpy(data, bytes, size, INFINIRT_MEMCPY_H2D), "infinirtMemcpy");
    std::vector<ptrdiff_t> strides(shape.size(), 1);
    for (size_t n = shape.size() - 1; n > 0; n--) strides[n - 1] = strides[n] * (ptrdiff_t)shape[n];
    check(infiniopCreateTensorDescriptor(&desc, shape.size(), shape.data(), strides.data(), dtype), "infiniopCreateTensorDescriptor");
  }
  ~Device() { infiniopDestroyTensorDescriptor(desc); infinirtFree(data); }
};

/* PASTE YOUR CALL HERE: it reads r->x and writes r->y. Returns NULL, or why it cannot do this case (a skip). */
static const char *rope(const Rope *r) {
  if (r->weight || r->rows) return "no norm and no cache in this harness";
  if (r->pairing == INTERLEAVED_TO_HALF) return "InfiniOp has no interleaved-to-half";
  const size_t size = r->xType == F64 ? 8 : r->xType == F32 ? 4 : 2, dim = (size_t)r->rotaryDim;
  const size_t batch = (size_t)r->batch, seq = (size_t)r->seq, heads = (size_t)r->heads;
  const long tokens = r->batch * r->seq, pairs = r->rotaryDim / 2;
  const infiniDtype_t dtype = r->xType == F64   ? INFINI_DTYPE_F64
                              : r->xType == F32 ? INFINI_DTYPE_F32
                              : r->xType == F16 ? INFINI_DTYPE_F16
                                                : INFINI_DTYPE_BF16;
  /* The window that rotates, and tables in its dtype with a row of their own for each token: positions are row numbers. */
  std::vector<uint8_t> x((size_t)tokens * heads * dim * size), sine((size_t)tokens * dim / 2 * size), cosine(sine.size());
  std::vector<int32_t> position((size_t)tokens);
  auto row = [&](const long *stride, long token, long h) {
    return (size_t)(token / r->seq * stride[0] + token % r->seq * stride[1] + h * stride[2]) * size;
  };
  const size_t skipped = (size_t)r->rotaryOffset * size, whole = (size_t)r->headDim * size;
  for (long t = 0; t < tokens; t++) {
    position[(size_t)t] = (int32_t)t;
    for (long h = 0; h < r->heads; h++) {
      const char *from = (const char *)r->x + row(r->xStride, t, h);
      memcpy((char *)r->y + row(r->yStride, t, h), from, whole);
      memcpy(&x[((size_t)t * heads + (size_t)h) * dim * size], from + skipped, dim * size);
    }
    for (long j = 0; j < pairs; j++) {
      const double angle = (double)r->positions[r->axis[j] * tokens + t] * r->invFreq[j];
      store(cosine.data(), r->xType, t * pairs + j, cos(angle) * r->magnitude);
      store(sine.data(), r->xType, t * pairs + j, sin(angle) * r->magnitude * (r->backward ? -1 : 1));
    }
  }
  std::vector<size_t> shape = {batch, seq, heads, dim}, ids = {batch, seq};
  if (r->batch == 1) shape = {seq, heads, dim}, ids = {seq};
  const std::vector<size_t> table = {(size_t)tokens, dim / 2};
  Device input(x.data(), x.size(), shape, dtype), output(x.data(), x.size(), shape, dtype);
  Device pos(position.data(), position.size() * 4, ids, INFINI_DTYPE_I32);
  Device sinTable(sine.data(), sine.size(), table, dtype), cosTable(cosine.data(), cosine.size(), table, dtype);
  infiniopRoPEDescriptor_t desc = nullptr;
  size_t workspaceSize = 0;
  void *workspace = nullptr;
  infiniStatus_t status = infiniopCreateRoPEDescriptor(handle, &desc, output.desc, input.desc, pos.desc, sinTable.desc, cosTable.desc,
                                                       r->pairing == HALF ? INFINIOP_ROPE_ALGO_GPT_NEOX : INFINIOP_ROPE_ALGO_GPT_J);
  if (status == INFINI_STATUS_SUCCESS) {
    check(infiniopGetRoPEWorkspaceSize(desc, &workspaceSize), "infiniopGetRoPEWorkspaceSize");
    if (workspaceSize > 0) check(infinirtMalloc(&workspace, workspaceSize), "infinirtMalloc");
    status = infiniopRoPE(desc, workspace, workspaceSize, output.data, input.data, pos.data, sinTable.data, cosTable.data, nullptr);
    check(infinirtDeviceSynchronize(), "infinirtDeviceSynchronize");
    if (workspace) infinirtFree(workspace);
    infiniopDestroyRoPEDescriptor(desc);
  }
  static char why[128];
  snprintf(why, sizeof why, "InfiniOp refuses these arguments: status %d", (int)status);
  if (status == INFINI_STATUS_NOT_IMPLEMENTED || status == INFINI_STATUS_BAD_TENSOR_DTYPE) return why;
  check(status, "infiniopRoPE");
  check(infinirtMemcpy(x.data(), output.data, x.size(), INFINIRT_MEMCPY_D2H), "infinirtMemcpy");
  for (long n = 0; n < tokens * r->heads; n++)
    memcpy((char *)r->y + row(r->yStride, n / r->heads, n % r->heads) + skipped, &x[(size_t)n * dim * size], dim * size);
  return NULL;
}

/* The program's first argument: a device of infinicore.h and its number, such as ascend:0. */
static const char *openDevice(const char *name) {
  static const char *const devices[] = {"cpu", "nvidia", "cambricon", "ascend", "metax", "moore", "iluvatar", "kunlun", "hygon"};
  const size_t length = name ? strcspn(name, ":") : 3;
  for (int n = 0; n < (int)(sizeof devices / sizeof *devices); n++) {
    if (strlen(devices[n]) != length || strncmp(devices[n], name ? name : "cpu", length)) continue;
    if (infinirtInit() == INFINI_STATUS_SUCCESS &&
        infinirtSetDevice((infiniDevice_t)n, name && name[length] ? atoi(name + length + 1) : 0) == INFINI_STATUS_SUCCESS &&
        infiniopCreateHandle(&handle) == INFINI_STATUS_SUCCESS)
      return NULL;
  }
  return "InfiniCore has no such device here";
}

#include "protocol.h"
