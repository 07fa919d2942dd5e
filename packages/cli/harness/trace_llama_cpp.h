// PASTE: include this file, and before llama_init_from_model(model, params):
//   params.cb_eval = ropewalk_trace;
//   params.cb_eval_user_data = (void *) "theirs"; // a folder that exists
// Each tensor becomes a .npy, named by pass and order. A warm-up is a pass too: leave it out.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"

// Writes a tensor of f32, f16 or i32, which may be a view, with its sizes from the outermost to the innermost.
static void ropewalk_write(const char * folder, int step, int index, const char * name, const ggml_tensor * t) {
    const char * type = t->type == GGML_TYPE_F32 ? "<f4" : t->type == GGML_TYPE_F16 ? "<f2" : "<i4";
    if (t->type != GGML_TYPE_F32 && t->type != GGML_TYPE_F16 && t->type != GGML_TYPE_I32) return;
    std::vector<char> all(ggml_nbytes(t)), dense;
    ggml_backend_tensor_get(t, all.data(), 0, all.size());
    const size_t unit = t->type == GGML_TYPE_F16 ? 2 : 4;
    dense.reserve(ggml_nelements(t) * unit);
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < t->ne[2]; i2++)
            for (int64_t i1 = 0; i1 < t->ne[1]; i1++)
                for (int64_t i0 = 0; i0 < t->ne[0]; i0++) {
                    const char * at = all.data() + i0 * t->nb[0] + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
                    dense.insert(dense.end(), at, at + unit);
                }
    std::string sizes;
    for (int d = std::max(ggml_n_dims(t), 2) - 1; d >= 0; d--) sizes += std::to_string(t->ne[d]) + ",";
    std::string head = std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
    head += std::string(63 - (10 + head.size()) % 64, ' ') + "\n";
    const std::string path = std::string(folder) + "/step=" + std::to_string(step) + "___rank=0___dump_index=" +
                             std::to_string(index) + "___name=" + name + ".npy";
    FILE * file = std::fopen(path.c_str(), "wb");
    if (!file) { std::perror(path.c_str()); return; }
    const uint8_t start[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t) head.size(), (uint8_t) (head.size() >> 8)};
    bool written = std::fwrite(start, sizeof start, 1, file) == 1 && std::fwrite(head.data(), head.size(), 1, file) == 1;
    written = written && std::fwrite(dense.data(), 1, dense.size(), file) == dense.size();
    if (std::fclose(file) != 0 || !written) {
        std::perror(path.c_str());
        std::remove(path.c_str()); // a part of a tensor would be read as a fault
    }
}

static bool ropewalk_trace(ggml_tensor * t, bool ask, void * folder) {
    static const char * names[] = {"inp_embd", "embd", "attn_norm-", "Qcur", "Kcur", "Vcur", "kqv_out-", "attn_out-",
                                   "ffn_inp-", "ffn_norm-", "ffn_out-", "l_out-", "result_"};
    static int step = -1, index = 0;
    bool wanted = false;
    for (const char * name : names) wanted = wanted || std::strncmp(t->name, name, std::strlen(name)) == 0;
    if (ask || !wanted) return wanted;
    const std::string op = ggml_op_name(t->op);
    const bool first = op == "GET_ROWS" && std::strstr(t->name, "embd");
    if (first) step++, index = 0;
    if (first) ropewalk_write((const char *) folder, step, index++, "tokens", t->src[1]);
    if (op == "ROPE" && std::strcmp(t->name, "Qcur-0") == 0)
        ropewalk_write((const char *) folder, step, index++, "positions", t->src[1]);
    ropewalk_write((const char *) folder, step, index++, t->name, t);
    return true;
}
