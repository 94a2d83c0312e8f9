# Targets `format` and `format-check`: clang-format over every source file that git tracks or would track. The style
# is .clang-format's as version 14 (Debian 12) reads it; other versions break lines elsewhere and are refused.
find_program(ARCOMM_CLANG_FORMAT NAMES clang-format-14 clang-format)
set(arcomm_run_clang_format
  ${CMAKE_COMMAND} -DCLANG_FORMAT=${ARCOMM_CLANG_FORMAT} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
  -P ${CMAKE_CURRENT_LIST_DIR}/run_clang_format.cmake)
add_custom_target(format COMMAND ${arcomm_run_clang_format} write VERBATIM)
add_custom_target(format-check COMMAND ${arcomm_run_clang_format} check VERBATIM)
