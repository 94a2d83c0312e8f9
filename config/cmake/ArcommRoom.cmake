# arcomm_room(<target> SOURCES ... HEADERS ... DEPENDS ...): one room of the design as a static library.
# Sources are named relative to the calling CMakeLists.txt. Every header named is also compiled alone, so that an
# include a header forgot is found here: by tests/headers/check_alone.py, or target all_verify_interface_header_sets.
function(arcomm_room target)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE" ${ARGN})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} ${ARG_DEPENDS})
  if(ARG_SOURCES)
    target_link_libraries(${target} PRIVATE arcomm_options ${ARG_PRIVATE})
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  if(ARG_HEADERS)
    target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
endfunction()

# arcomm_test(<name> LABEL <unit|conformance|...> SOURCES ... DEPENDS ... [TIMEOUT s]): a GoogleTest program
# that ctest runs as one entry. Target unit_tests builds those that need no daemon (labels unit, conformance).
add_custom_target(unit_tests)
function(arcomm_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPENDS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE arcomm_options ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  # One ctest entry per program keeps process start-up from dominating; the cases are printed by the program.
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(ARG_LABEL MATCHES "^(unit|conformance)$")
    add_dependencies(unit_tests ${name})
  endif()
endfunction()
