#include <cstddef>
#include <vector>
#include "acl/acl.h"
#include "rope.h"

/* The entry of your kernel, in its own file: InfiniOp's, whose types have the numbers of infinicore.h. Tables are dense. */
extern "C" int32_t rope_kernel_launch(void *y, void *x, void *pos, void *sin, void *cos, size_t seq_len, size_t nhead, size_t dhead,
                                      int32_t data_type, int32_t pos_type, ptrdiff_t y_stride_seqlen, ptrdiff_t y_stride_nhead,
                                      ptrdiff_t x_stride_seqlen, ptrdiff_t x_stride_nhead, void *stream);
enum { I32_TYPE = 5, F16_TYPE = 12, F32_TYPE = 13, BF16_TYPE = 19 };

static Pairing pairing = INTERLEAVED; /* of the kernel */
static aclrtStream stream;

/* A failure of the case, which verify reports, and not a skip. */
static void check(aclError status, const char *call) {
  if (status != ACL_SUCCESS) { fprintf(stderr, "%s: status %d: %s\n", call, (int)status, aclGetRecentErrMsg()); exit(1); }
}

/* Memory of the device. The documentation's kernel reads up to a row past the end of its tables, so that each has more. */
struct Device {
  void *data = nullptr;
  Device(const void *bytes, size_t size, size_t more = 0) {
    check(aclrtMalloc(&data, size + more, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check(aclrtMemcpy(data, size, bytes, size, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
  }
  ~Device() { aclrtFree(data); }
};

/* PASTE YOUR CALL HERE: it reads r->x and writes r->y. Returns NULL, or why it cannot do this case (a skip). */
static const char *rope(const Rope *r) {
  if (r->weight || r->rows) return "no norm and no cache in this harness";
  if (r->xType == F64) return "AscendC's vectors are f32, f16 or bf16";
  if (r->pairing != pairing) return "the kernel has other pairs: the program's argument half:0 or 0 says which";
  const size_t size = r->xType == F32 ? 4 : 2, dim = (size_t)r->rotaryDim, seq = (size_t)r->seq, heads = (size_t)r->heads;
  const long pairs = r->rotaryDim / 2;
  const int32_t type = r->xType == F32 ? F32_TYPE : r->xType == F16 ? F16_TYPE : BF16_TYPE;
  static char why[128];
  for (long b = 0; b < r->batch; b++) {
    /* The window that rotates, and tables in its dtype with a row for each token, in another order: positions are rows. */
    std::vector<uint8_t> x(seq * heads * dim * size), sine(seq * dim / 2 * size), cosine(sine.size());
    std::vector<int32_t> position(seq);
    auto row = [&](const long *stride, long t, long h) { return (size_t)(b * stride[0] + t * stride[1] + h * stride[2]) * size; };
    const size_t skipped = (size_t)r->rotaryOffset * size, whole = (size_t)r->headDim * size;
    for (long t = 0; t < r->seq; t++) {
      const long at = r->seq - 1 - t;
      position[(size_t)t] = (int32_t)at;
      for (long h = 0; h < r->heads; h++) {
        const char *from = (const char *)r->x + row(r->xStride, t, h);
        memcpy((char *)r->y + row(r->yStride, t, h), from, whole);
        memcpy(&x[(size_t)(t * r->heads + h) * dim * size], from + skipped, dim * size);
      }
      for (long j = 0; j < pairs; j++) {
        const double angle = (double)r->positions[r->axis[j] * r->batch * r->seq + b * r->seq + t] * r->invFreq[j];
        store(cosine.data(), r->xType, at * pairs + j, cos(angle) * r->magnitude);
        store(sine.data(), r->xType, at * pairs + j, sin(angle) * r->magnitude * (r->backward ? -1 : 1));
      }
    }
    Device input(x.data(), x.size()), output(x.data(), x.size()), pos(position.data(), seq * 4);
    Device sinTable(sine.data(), sine.size(), dim * size), cosTable(cosine.data(), cosine.size(), dim * size);
    const ptrdiff_t token = (ptrdiff_t)(heads * dim), head = (ptrdiff_t)dim;
    const int32_t status = rope_kernel_launch(output.data, input.data, pos.data, sinTable.data, cosTable.data, seq, heads, dim, type, I32_TYPE,
                                              token, head, token, head, stream);
    snprintf(why, sizeof why, "rope_kernel_launch refuses these arguments: status %d", (int)status);
    if (status != 0) return why;
    check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    check(aclrtMemcpy(x.data(), x.size(), output.data, x.size(), ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
    for (long n = 0; n < r->seq * r->heads; n++)
      memcpy((char *)r->y + row(r->yStride, n / r->heads, n % r->heads) + skipped, &x[(size_t)n * dim * size], dim * size);
  }
  return NULL;
}

/* The program's first argument: the device's number; half:0 for a kernel of pairs (j, j + dhead / 2). */
static const char *openDevice(const char *name) {
  if (name && !strncmp(name, "half", 4)) pairing = HALF, name = name[4] == ':' ? name + 5 : "0";
  if (aclInit(NULL) != ACL_SUCCESS || aclrtSetDevice(name ? atoi(name) : 0) != ACL_SUCCESS || aclrtCreateStream(&stream) != ACL_SUCCESS)
    return "CANN has no such device here";
  return NULL;
}

#include "protocol.h"
