#pragma once
#include "../acl/acl.h"
inline aclnnStatus aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor *x, const aclTensor *cos, const aclTensor *sin,
                                                                int64_t mode, aclTensor *out, uint64_t *, aclOpExecutor **executor) {
  if (x->shape.size() != 4 || cos->shape[2] != 1 || x->shape[1] != cos->shape[1]) return 161002;
  *executor = new aclOpExecutor{x, cos, sin, mode, out};
  return 0;
}
inline aclnnStatus aclnnRotaryPositionEmbedding(void *w, uint64_t n, aclOpExecutor *e, aclrtStream s) { return runRotation(w, n, e, s); }
