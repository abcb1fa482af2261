// SPDX-License-Identifier: Apache-2.0
// Runs the Python that draws reports.
#pragma once

#include <string>
#include <vector>

namespace isobit::lab {

enum class Output { shown, hidden };

// The exit status of Python with these arguments and the project's modules on its path; 127 where
// there is none.
int python(const std::vector<std::string>& arguments, Output output);

// Which Python that is.
std::string python_path();

}  // namespace isobit::lab
