#pragma once
#include "../acl/acl.h"
inline aclnnStatus aclnnApplyRotaryPosEmbV2GetWorkspaceSize(aclTensor *query, aclTensor *key, const aclTensor *cos, const aclTensor *sin,
                                                            int64_t layout, char *mode, uint64_t *, aclOpExecutor **executor) {
  if (layout != 4 || query->shape.size() != 3 || key->shape[0] != query->shape[0] || cos->shape[1] != 1) return 161002;
  *executor = new aclOpExecutor{query, cos, sin, strcmp(mode, "half") ? 1 : 0, query};
  return 0;
}
inline aclnnStatus aclnnApplyRotaryPosEmbV2(void *w, uint64_t n, aclOpExecutor *e, aclrtStream s) { return runRotation(w, n, e, s); }
