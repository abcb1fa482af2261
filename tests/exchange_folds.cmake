# SPDX-License-Identifier: Apache-2.0
# Writes a copy of the header FROM to TO in which the second and the third fold over a block's rows are exchanged.
file(READ ${FROM} header)
set(second "if constexpr (kCount > 2) fold_onto(0, 2);
  if constexpr (kCount > 3) fold_onto(1, 3);")
set(third "if constexpr (kCount > 1) fold_onto(0, 1);")
string(FIND "${header}" "${second}\n  ${third}" found)
if(found EQUAL -1)
  message(FATAL_ERROR "${FROM} no longer holds the folds to be exchanged")
endif()
string(REPLACE "${second}\n  ${third}"
  "if constexpr (kCount > 1) fold_onto(0, 1);
  if constexpr (kCount > 3) fold_onto(2, 3);
  if constexpr (kCount > 2) fold_onto(0, 2);" header "${header}")
file(WRITE ${TO} "${header}")
