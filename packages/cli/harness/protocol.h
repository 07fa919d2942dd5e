/* ---- The protocol of docs/verify.md; nothing to change below, unless you add an operator to compute(). ---- */

typedef struct {
  char name[64], dtype[8];
  long shape[8], size; /* size in bytes */
  int rank;
  unsigned char *data;
} Tensor;

typedef struct {
  char *json, *answer; /* the header; its list of outputs */
  char id[256], op[64];
  Tensor in[16], out[16];
  int ins, outs;
} Case;

static void *need(size_t size) {
  void *got = calloc(size ? size : 1, 1);
  if (!got) { fprintf(stderr, "no memory for %zu bytes\n", size); exit(1); }
  return got;
}

/* The place behind a key. The header has no blanks, and its keys are in a known order. */
static char *after(const char *json, const char *key) {
  char pattern[64];
  snprintf(pattern, sizeof pattern, "\"%s\":", key);
  const char *at = json ? strstr(json, pattern) : NULL;
  return at ? (char *)at + strlen(pattern) : NULL;
}

static void text(const char *json, const char *key, char *to, size_t size) {
  const char *at = after(json, key);
  size_t n = 0;
  if (at && *at == '"') for (at++; at[n] && at[n] != '"' && n + 1 < size; n++) to[n] = at[n];
  to[n] = 0;
}

static double number(const char *json, const char *key, double otherwise) {
  const char *at = after(json, key);
  return at ? strtod(at, NULL) : otherwise;
}

/* Reads a list of tensors; the inputs' bytes follow the header, the outputs' are zeros. */
static int tensors(const char *at, Tensor *list) {
  int n = 0;
  for (; at && *at != ']' && n < 16; at++) {
    if (*at != '{') continue;
    Tensor *t = &list[n++];
    text(at, "name", t->name, sizeof t->name);
    text(at, "dtype", t->dtype, sizeof t->dtype);
    char *next = after(at, "shape") + 1;
    for (t->rank = 0; *next != ']' && t->rank < 8;) {
      t->shape[t->rank++] = strtol(next, &next, 10);
      if (*next == ',') next++;
    }
    t->size = (long)number(next, "byteLength", 0);
    t->data = (unsigned char *)need((size_t)t->size);
    at = strchr(next, '}');
  }
  return n;
}

static char *readLine(void) {
  size_t size = 1 << 16, n = 0;
  char *line = (char *)malloc(size);
  for (int c; line && (c = getchar()) != EOF && c != '\n'; line[n] = 0) {
    line[n++] = (char)c;
    if (n + 1 == size) line = (char *)realloc(line, size *= 2);
  }
  if (n) return line;
  free(line);
  return NULL;
}

static Tensor *find(Tensor *list, int count, const char *name) {
  for (int n = 0; n < count; n++) if (!strcmp(list[n].name, name)) return &list[n];
  return NULL;
}

static Type typeOf(const Tensor *t) {
  const char *names[] = {"f32", "f16", "bf16", "f64"};
  for (int n = 0; n < 4; n++) if (!strcmp(t->dtype, names[n])) return (Type)n;
  return OTHER_TYPE;
}

static void strides(const Tensor *t, int headsFirst, long *to) {
  const long *shape = t->shape;
  to[0] = shape[1] * shape[2] * shape[3];
  to[1] = headsFirst ? shape[3] : shape[2] * shape[3];
  to[2] = headsFirst ? shape[2] * shape[3] : shape[3];
}

/* Integers i32 or i64 as i64, repeated to `count`: positions [seq] stand for every batch. */
static int64_t *integers(const Tensor *t, long axes, long count) {
  const int wide = !strcmp(t->dtype, "i64");
  const long given = t->size / (wide ? 8 : 4) / axes;
  int64_t *all = (int64_t *)need(8 * (size_t)(axes * count));
  for (long n = 0; given > 0 && n < axes * count; n++) {
    const long at = n / count * given + n % count % given;
    all[n] = wide ? ((const int64_t *)t->data)[at] : ((const int32_t *)t->data)[at];
  }
  return all;
}

/* Calls rope() for each part: q and k may come in one case. */
static const char *ropeParts(Case *c) {
  char *derived = after(c->json, "rope"), word[32], scaling[32];
  static char beyond[256]; /* it may be the answer */
  Rope r;
  memset(&r, 0, sizeof r);
  text(derived, "pairing", word, sizeof word);
  r.pairing = !strcmp(word, "half") ? HALF : !strcmp(word, "interleaved") ? INTERLEAVED : INTERLEAVED_TO_HALF;
  r.rotaryDim = (long)number(derived, "rotaryDim", 0);
  r.rotaryOffset = (long)number(derived, "rotaryOffset", 0);
  r.magnitude = number(derived, "magnitude", 1);
  r.base = number(derived, "base", 0);
  text(derived, "scaling", scaling, sizeof scaling);
  text(derived, "beyond", beyond, sizeof beyond);
  r.scaling = scaling, r.beyond = beyond;
  r.json = c->json;
  text(c->json, "direction", word, sizeof word);
  r.backward = !strcmp(word, "backward");
  text(c->json, "layout", word, sizeof word);
  const int headsFirst = !strcmp(word, "bnsh");
  r.axes = (long)number(derived, "numAxes", 1);
  const Tensor *positions = find(c->in, c->ins, "positions");
  double *invFreq = (double *)need(8 * (size_t)r.rotaryDim);
  int64_t *axis = (int64_t *)need(8 * (size_t)r.rotaryDim);
  char *f = after(derived, "invFreq") + 1, *a = after(derived, "axisOfPair") + 1;
  for (long j = 0; j < r.rotaryDim / 2; j++, f++, a++) invFreq[j] = strtod(f, &f), axis[j] = strtol(a, &a, 10);
  r.invFreq = invFreq;
  r.axis = axis;

  const char *why = positions ? NULL : "no positions";
  char *part = after(c->json, "parts");
  for (char *end; !why && part && (part = strchr(part, '{')) && part < derived; part = end) {
    end = strchr(part, '}');
    *end = 0; /* so that keys are found in this part only */
    text(part, "x", word, sizeof word);
    Tensor *x = find(c->in, c->ins, word);
    text(part, "out", word, sizeof word);
    Tensor *y = find(c->out, c->outs, word);
    text(part, "cache", word, sizeof word);
    Tensor *cache = find(c->in, c->ins, word);
    text(part, "rows", word, sizeof word);
    const Tensor *rows = find(c->in, c->ins, word);
    text(part, "weight", word, sizeof word);
    const Tensor *weight = find(c->in, c->ins, word);
    r.eps = number(part, "eps", 0);
    *end++ = '}';
    if (!x || !y || x->rank != 4 || y->rank != 4) { why = "expected tensors of rank 4"; break; }
    if (cache) memcpy(y->data, cache->data, (size_t)y->size);
    r.x = x->data, r.y = y->data, r.xType = typeOf(x), r.yType = typeOf(y);
    if (r.xType == OTHER_TYPE || r.yType == OTHER_TYPE) { why = "a dtype that this harness does not have"; break; }
    r.batch = x->shape[0], r.seq = x->shape[headsFirst ? 2 : 1], r.heads = x->shape[headsFirst ? 1 : 2];
    r.headDim = x->shape[3];
    strides(x, headsFirst, r.xStride);
    strides(y, headsFirst, r.yStride);
    int64_t *where = integers(positions, r.axes, r.batch * r.seq), *to = rows ? integers(rows, 1, r.batch * r.seq) : NULL;
    r.positions = where, r.rows = to;
    r.weight = weight ? weight->data : NULL;
    why = weight && typeOf(weight) != r.xType ? "a weight of another dtype than x" : rope(&r);
    free(where);
    free(to);
  }
  free(invFreq);
  free(axis);
  return why;
}

#ifdef OPERATORS
static const char *operators(Case *c);
#endif

/* Add other operators here: inputs are find(c->in, c->ins, "a")->data, outputs c->out[0].data, attributes in c->json. */
static const char *compute(Case *c) {
  static char why[128];
  if (!strcmp(c->op, "rope")) return ropeParts(c);
#ifdef OPERATORS
  return operators(c);
#endif
  snprintf(why, sizeof why, "op %s: this harness has rope only", c->op);
  return why;
}

/* For verify --perf: times the kernel and, after each call, a copy; three of both warm up. NULL, or what is wrong. */
static const char *perf(Case *c, long repeats, size_t size) {
  const char *wrong = NULL;
  double *seconds = (double *)need(16 * (size_t)repeats);
  for (long n = -6; n < 2 * repeats && !wrong; n++) {
    took = -1;
    if (n % 2) timeCopy(size);
    else wrong = compute(c);
    if (n >= 0) seconds[n] = took;
    if (!wrong && took < 0) wrong = n % 2 ? "no memory for a copy" : "there is no begin() and end() around the kernel";
  }
  if (!wrong) {
    printf("{\"id\":\"%s\",\"perf\":{\"seconds\":[", c->id);
    for (long n = 0; n < 2 * repeats; n += 2) printf("%s%.9g", n ? "," : "", seconds[n]);
    printf("],\"copySeconds\":[");
    for (long n = 1; n < 2 * repeats; n += 2) printf("%s%.9g", n > 1 ? "," : "", seconds[n]);
    printf("]}}\n");
  }
  free(seconds);
  return wrong;
}

int main(int argc, char **argv) {
  const char *why = openDevice(argc > 1 ? argv[1] : NULL);
  Case c;
  while ((c.json = readLine())) {
    text(c.json, "id", c.id, sizeof c.id);
    text(c.json, "op", c.op, sizeof c.op);
    c.answer = strstr(c.json, "\"outputs\":[");
    c.ins = tensors(after(c.json, "inputs"), c.in);
    c.outs = tensors(after(c.answer, "outputs"), c.out);
    for (int n = 0; n < c.ins; n++)
      if (fread(c.in[n].data, 1, (size_t)c.in[n].size, stdin) != (size_t)c.in[n].size) return 1;
    const char *asked = after(c.json, "perf");
    const long repeats = (long)number(asked, "repeats", 0);
    const char *skip = why       ? why
                       : asked ? perf(&c, repeats, (size_t)number(asked, "bytes", 0) / 2)
                               : compute(&c);
    if (skip) printf("{\"id\":\"%s\",\"%s\":\"%s\"}\n", c.id, asked ? "error" : "skip", skip);
    else if (!asked) {
      printf("{\"id\":\"%s\",%s\n", c.id, c.answer);
      for (int n = 0; n < c.outs; n++) fwrite(c.out[n].data, 1, (size_t)c.out[n].size, stdout);
    }
    fflush(stdout); /* or the answer stays in the buffer, and verify waits for it in vain */
    for (int n = 0; n < c.ins; n++) free(c.in[n].data);
    for (int n = 0; n < c.outs; n++) free(c.out[n].data);
    free(c.json);
  }
  return 0;
}
