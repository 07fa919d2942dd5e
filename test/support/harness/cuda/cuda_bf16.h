#pragma once
#include "cuda_fp16.h"
typedef Float16<7, -126> __nv_bfloat16;
