#pragma once

#include <gtest/gtest.h>

#include "cmake/precompiled/rpc.h"
