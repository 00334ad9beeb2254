# The diagnosis: libgmlake_diagnosis or the extension gmlake.diagnosis._diagnosis, and the collector.
# Each brings base/, all that it needs of the allocator.
set(DIAGNOSIS_FOLDER ${CMAKE_CURRENT_LIST_DIR})
file(GLOB DIAGNOSIS_SOURCES CONFIGURE_DEPENDS ${DIAGNOSIS_FOLDER}/*.c)
file(GLOB DIAGNOSIS_BASE CONFIGURE_DEPENDS csrc/base/*.c)

if(GMLAKE_ONE_LIBRARY)
    add_library(gmlake_diagnosis_objects SHARED ${DIAGNOSIS_SOURCES})
else()
    add_library(gmlake_diagnosis_objects OBJECT ${DIAGNOSIS_SOURCES})
endif()
target_include_directories(gmlake_diagnosis_objects PUBLIC ${DIAGNOSIS_FOLDER}/include)
target_compile_definitions(gmlake_diagnosis_objects PRIVATE _GNU_SOURCE)
# What it is built with; of an object library only the targets that name it get the objects.
target_link_libraries(gmlake_diagnosis_objects PUBLIC gmlake_objects)

if(GMLAKE_PYTHON)
    gmlake_add_extension(_diagnosis gmlake/diagnosis
        ${DIAGNOSIS_FOLDER}/python/diagnosis_module.c csrc/python/values.c ${DIAGNOSIS_BASE})
    target_include_directories(_diagnosis PRIVATE csrc/python)
    target_link_libraries(_diagnosis PRIVATE gmlake_diagnosis_objects)
    target_compile_definitions(_diagnosis PRIVATE _GNU_SOURCE GMLAKE_VERSION="${PROJECT_VERSION}")
elseif(NOT GMLAKE_ONE_LIBRARY)
    add_library(gmlake_diagnosis SHARED ${DIAGNOSIS_BASE})
    target_link_libraries(gmlake_diagnosis PUBLIC gmlake_diagnosis_objects)
    target_compile_definitions(gmlake_diagnosis PRIVATE
        _GNU_SOURCE GMLAKE_VERSION="${PROJECT_VERSION}")
    set_target_properties(gmlake_diagnosis PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
    install(TARGETS gmlake_diagnosis)
    install(FILES ${DIAGNOSIS_FOLDER}/include/gmlake_diagnose.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT headers)
endif()

# The collector, a library of its own: the CUDA driver loads it into programs that know nothing of
# gmlake, so it shares no state with the extensions.
if(UNIX AND NOT APPLE)
    file(GLOB COLLECT_SOURCES CONFIGURE_DEPENDS ${DIAGNOSIS_FOLDER}/collect/*.c)
    add_library(gmlake_collect SHARED ${COLLECT_SOURCES} csrc/base/map.c)
    target_include_directories(gmlake_collect PRIVATE csrc csrc/include ${DIAGNOSIS_FOLDER}/include)
    target_compile_definitions(gmlake_collect PRIVATE _GNU_SOURCE)
    target_compile_options(gmlake_collect PRIVATE
        $<TARGET_PROPERTY:gmlake_objects,INTERFACE_COMPILE_OPTIONS>)
    target_link_options(gmlake_collect PRIVATE
        $<TARGET_PROPERTY:gmlake_objects,INTERFACE_LINK_OPTIONS>)
    # CUPTI keeps calling it.
    target_link_options(gmlake_collect PRIVATE LINKER:-z,nodelete)
    target_link_libraries(gmlake_collect PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    if(GMLAKE_PYTHON)
        install(TARGETS gmlake_collect DESTINATION gmlake/diagnosis)
    else()
        install(TARGETS gmlake_collect)
    endif()
endif()

if(GMLAKE_TESTS)
    set(TESTS ${PROJECT_SOURCE_DIR}/tests/c/diagnosis)
    add_library(diagnosis_test_support STATIC ${TESTS}/scenario.c ${TESTS}/random_trace.c)
    target_link_libraries(diagnosis_test_support PUBLIC
        gmlake_diagnosis_objects gmlake_test_support)
    file(GLOB DIAGNOSIS_TESTS CONFIGURE_DEPENDS ${TESTS}/test_*.c)
    gmlake_add_tests(${DIAGNOSIS_TESTS} LIBRARIES gmlake_diagnosis_objects diagnosis_test_support)

    # CUPTI and the Sanitizer for machines without one; the collector is told of them by name.
    foreach(FAKE fake_cupti fake_sanitizer fake_plugin)
        add_library(${FAKE} SHARED ${TESTS}/${FAKE}.c)
        target_include_directories(${FAKE} PRIVATE tests/c csrc)
        target_compile_definitions(${FAKE} PRIVATE _GNU_SOURCE)
    endforeach()
    add_dependencies(test_collect
        fake_cupti fake_libcuda fake_plugin fake_sanitizer gmlake_collect)
    target_compile_definitions(test_collect PRIVATE FAKE_CUPTI="$<TARGET_FILE:fake_cupti>"
        FAKE_SANITIZER="$<TARGET_FILE:fake_sanitizer>"
        FAKE_PLUGIN="$<TARGET_FILE:fake_plugin>"
        OTHER_LIBRARY="$<TARGET_FILE:fake_libcuda>" COLLECTOR="$<TARGET_FILE:gmlake_collect>")
    set_property(TEST test_collect PROPERTY ENVIRONMENT
        LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/c/fake)
endif()
