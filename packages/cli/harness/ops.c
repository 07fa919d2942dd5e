#define OPERATORS
#include "rope.h"

static const char *rope(const Rope *r) {
  (void)r;
  return "rope: use ropewalk harness c";
}

/* Opens a device, if your kernels need one. Returns NULL, or why every case is skipped. */
static const char *openDevice(const char *name) {
  (void)name; /* the program's first argument */
  return NULL;
}

#include "protocol.h"

/* PASTE YOUR KERNELS HERE: each reads inputs with load(), or as arrays, and writes outputs. NULL, or why it is a skip. */

static long rowsOf(const Tensor *t) {
  long rows = 1;
  for (int d = 0; d + 1 < t->rank; d++) rows *= t->shape[d];
  return rows;
}

static long widthOf(const Tensor *t) { return t->rank ? t->shape[t->rank - 1] : 1; }

static void add(Tensor *out, const Tensor *a, const Tensor *b) {
  const Type type = typeOf(a);
  for (long n = 0; n < rowsOf(a) * widthOf(a); n++) store(out->data, type, n, load(a->data, type, n) + load(b->data, type, n));
}

/* The first of equal maxima; NaN counts as the maximum. Copies the value bit for bit. */
static void argmax(Tensor *index, Tensor *value, const Tensor *x) {
  const Type type = typeOf(x);
  const long width = widthOf(x), size = type == F32 ? 4 : type == F64 ? 8 : 2;
  for (long row = 0; row < rowsOf(x); row++) {
    long best = 0;
    for (long i = 1; i < width; i++) {
      const double now = load(x->data, type, row * width + i), old = load(x->data, type, row * width + best);
      if (!isnan(old) && (isnan(now) || now > old)) best = i;
    }
    if (!strcmp(index->dtype, "i64")) ((int64_t *)index->data)[row] = best;
    else ((int32_t *)index->data)[row] = (int32_t)best;
    memcpy(value->data + row * size, x->data + (row * width + best) * size, (size_t)size);
  }
}

static const char *embedding(Tensor *out, const Tensor *index, const Tensor *weight) {
  const long count = rowsOf(index) * widthOf(index), bytes = weight->shape[0] ? weight->size / weight->shape[0] : 0;
  int64_t *rows = integers(index, 1, count);
  for (long n = 0; n < count; n++) memcpy(out->data + n * bytes, weight->data + rows[n] * bytes, (size_t)bytes);
  free(rows);
  return NULL;
}

static void linear(Tensor *out, const Tensor *x, const Tensor *weight, const Tensor *bias) {
  const Type type = typeOf(x);
  const long k = widthOf(x), n = weight->shape[0];
  for (long row = 0; row < rowsOf(x); row++)
    for (long col = 0; col < n; col++) {
      double sum = bias ? load(bias->data, typeOf(bias), col) : 0;
      for (long i = 0; i < k; i++) sum += load(x->data, type, row * k + i) * load(weight->data, typeOf(weight), col * k + i);
      store(out->data, type, row * n + col, sum);
    }
}

static void rmsNorm(Tensor *out, const Tensor *x, const Tensor *weight, double eps) {
  const Type type = typeOf(x);
  const long width = widthOf(x);
  for (long row = 0; row < rowsOf(x); row++) {
    double squares = 0;
    for (long i = 0; i < width; i++) squares += pow(load(x->data, type, row * width + i), 2);
    const double rms = sqrt(squares / (double)width + eps);
    for (long i = 0; i < width; i++)
      store(out->data, type, row * width + i, load(x->data, type, row * width + i) * load(weight->data, typeOf(weight), i) / rms);
  }
}

/* Causal: the queries are the last tokens of k. Heads of k and v are shared by groups of heads of q. */
static void selfAttention(Tensor *out, const Tensor *q, const Tensor *k, const Tensor *v, double scale) {
  const Type type = typeOf(q);
  const int r = q->rank;
  const long batch = r == 4 ? q->shape[0] : 1, seq = q->shape[r - 3], heads = q->shape[r - 2], d = q->shape[r - 1];
  const long total = k->shape[r - 3], kvHeads = k->shape[r - 2], dv = v->shape[r - 1];
  double *weight = (double *)need(8 * (size_t)total);
  for (long b = 0; b < batch; b++)
    for (long s = 0; s < seq; s++)
      for (long h = 0; h < heads; h++) {
        const long kv = h / (heads / kvHeads), seen = total - seq + s + 1;
        double most = -INFINITY, sum = 0;
        for (long t = 0; t < seen; t++) {
          weight[t] = 0;
          for (long i = 0; i < d; i++)
            weight[t] += load(q->data, type, ((b * seq + s) * heads + h) * d + i) * load(k->data, type, ((b * total + t) * kvHeads + kv) * d + i);
          weight[t] *= scale;
          if (weight[t] > most) most = weight[t];
        }
        for (long t = 0; t < seen; t++) sum += weight[t] = exp(weight[t] - most);
        for (long i = 0; i < dv; i++) {
          double y = 0;
          for (long t = 0; t < seen; t++) y += weight[t] / sum * load(v->data, type, ((b * total + t) * kvHeads + kv) * dv + i);
          store(out->data, type, ((b * seq + s) * heads + h) * dv + i, y);
        }
      }
  free(weight);
}

static void swiglu(Tensor *out, const Tensor *gate, const Tensor *up) {
  const Type type = typeOf(gate);
  for (long n = 0; n < rowsOf(gate) * widthOf(gate); n++) {
    const double g = load(gate->data, type, n);
    store(out->data, type, n, g / (1 + exp(-g)) * load(up->data, type, n));
  }
}

/* Reads numbers in brackets behind a key. */
static int list(const char *at, const char *key, long *to) {
  char *next = after(at, key);
  int n = 0;
  for (next = next ? next + 1 : NULL; next && *next != ']' && n < 8;) {
    to[n++] = strtol(next, &next, 10);
    if (*next == ',') next++;
  }
  return n;
}

/* x and y are views: shape, strides in elements and offset are attributes. The gaps of y keep what y_initial has. */
static void rearrange(Tensor *out, const Tensor *x, const Tensor *initial, const char *json) {
  const char *views[2] = {after(json, "x"), after(json, "y")};
  long shape[8], strides[2][8], offset[2], index[8] = {0};
  const int rank = list(views[0], "shape", shape);
  for (int n = 0; n < 2; n++) list(views[n], "strides", strides[n]), offset[n] = (long)number(views[n], "offset", 0);
  const long count = rowsOf(x) * widthOf(x), unit = count ? x->size / count : 1;
  memcpy(out->data, initial->data, (size_t)out->size);
  for (;;) {
    long from = offset[0], to = offset[1];
    for (int d = 0; d < rank; d++) from += index[d] * strides[0][d], to += index[d] * strides[1][d];
    memcpy(out->data + to * unit, x->data + from * unit, (size_t)unit);
    int d = rank - 1;
    while (d >= 0 && ++index[d] == shape[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

static const char *operators(Case *c) {
  static char why[128];
  const char *beyond[] = {"format", "window", "softcap", "limit", "activation", "alpha", "offset"};
  const char *attributes = after(c->json, "attributes");
  const int moves = !strcmp(c->op, "rearrange");
  for (int n = 0; n < 7 - moves; n++)
    if (after(attributes, beyond[n]) && !moves) {
      snprintf(why, sizeof why, "no %s in this harness", beyond[n]);
      return why;
    }
  if (find(c->in, c->ins, "sinks")) return "no sinks in this harness";
  if (strstr(c->json, "\"causal\":false")) return "causal attention only in this harness";
#define IN(name) find(c->in, c->ins, name)
  const char *skip = NULL;
  begin();
  if (!strcmp(c->op, "add")) add(c->out, IN("a"), IN("b"));
  else if (!strcmp(c->op, "argmax")) argmax(&c->out[0], &c->out[1], IN("values"));
  else if (!strcmp(c->op, "embedding")) skip = embedding(c->out, IN("index"), IN("weight"));
  else if (!strcmp(c->op, "linear")) linear(c->out, IN("x"), IN("weight"), IN("bias"));
  else if (!strcmp(c->op, "rms_norm")) rmsNorm(c->out, IN("x"), IN("weight"), number(attributes, "eps", 0));
  else if (!strcmp(c->op, "self_attention")) selfAttention(c->out, IN("q"), IN("k"), IN("v"), number(attributes, "scale", 1));
  else if (!strcmp(c->op, "swiglu")) swiglu(c->out, IN("gate"), IN("up"));
  else if (moves) rearrange(c->out, IN("x"), IN("y_initial"), attributes);
  else {
    snprintf(why, sizeof why, "op %s: not in this harness", c->op);
    skip = why;
  }
  end();
  return skip;
}
