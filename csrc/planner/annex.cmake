# The planner: the library libgmlake_planner, and the extension gmlake.planner._planner. Of libgmlake it
# calls what the public headers declare; base/, which keeps no state, it has itself.
file(GLOB PLANNER_SOURCES CONFIGURE_DEPENDS csrc/planner/*.c)
if(GMLAKE_ONE_LIBRARY)
    add_library(gmlake_planner_objects SHARED ${PLANNER_SOURCES})
else()
    add_library(gmlake_planner_objects OBJECT ${PLANNER_SOURCES})
endif()
target_include_directories(gmlake_planner_objects PUBLIC csrc/planner/include)
target_compile_definitions(gmlake_planner_objects PRIVATE _GNU_SOURCE)
target_link_libraries(gmlake_planner_objects PUBLIC gmlake_objects)
file(GLOB PLANNER_BASE CONFIGURE_DEPENDS csrc/base/*.c)

if(GMLAKE_PYTHON)
    file(GLOB PLANNER_BINDING CONFIGURE_DEPENDS csrc/planner/python/*.c)
    gmlake_add_extension(_planner gmlake/planner
        ${PLANNER_BINDING} ${PLANNER_BASE} csrc/python/values.c)
    target_link_libraries(_planner PRIVATE gmlake_planner_objects)
    target_compile_definitions(_planner PRIVATE
        _GNU_SOURCE GMLAKE_VERSION="${PROJECT_VERSION}")
    add_dependencies(_planner _core)
    target_link_options(_planner PRIVATE
        LINKER:--no-as-needed $<TARGET_FILE:_core> LINKER:--as-needed)
    set_target_properties(_planner PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gmlake/planner INSTALL_RPATH "$ORIGIN/..")
elseif(NOT GMLAKE_ONE_LIBRARY)
    add_library(gmlake_planner SHARED ${PLANNER_BASE})
    target_compile_definitions(gmlake_planner PRIVATE
        _GNU_SOURCE GMLAKE_VERSION="${PROJECT_VERSION}")
    target_link_libraries(gmlake_planner PRIVATE gmlake_planner_objects gmlake)
    set_target_properties(gmlake_planner PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
    install(TARGETS gmlake_planner)
    install(FILES csrc/planner/include/gmlake_plan.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT headers)
endif()

if(GMLAKE_TESTS)
    file(GLOB PLANNER_SUPPORT CONFIGURE_DEPENDS tests/c/planner/support/*.c)
    add_library(gmlake_planner_test_support STATIC ${PLANNER_SUPPORT})
    target_link_libraries(gmlake_planner_test_support PUBLIC
        gmlake_test_support gmlake_planner_objects gmlake_objects)
    file(GLOB_RECURSE PLANNER_TESTS CONFIGURE_DEPENDS tests/c/planner/test_*.c)
    gmlake_add_tests(${PLANNER_TESTS} LIBRARIES gmlake_planner_test_support gmlake_planner_objects)
endif()
