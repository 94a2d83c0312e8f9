#pragma once
#include "arclient.h"
