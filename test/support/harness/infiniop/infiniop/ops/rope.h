#pragma once
#include "../../infinirt.h"
