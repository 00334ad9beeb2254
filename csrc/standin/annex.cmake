# The stand-in GPU: a libcuda.so.1 that is preloaded under the CUDA build of PyTorch, and the library
# that takes the place of NVIDIA's management library. Neither is loaded by anything else of gmlake.
#
# GMLAKE_STANDIN_PACKAGES is the site-packages folder of a Python that has that PyTorch: NVIDIA's
# headers come from there. By default it is that of the Python that gmlake is installed into. Without
# them there is no stand-in.
set(GMLAKE_STANDIN_PACKAGES "" CACHE PATH "site-packages with the CUDA build of PyTorch, for the stand-in; OFF: none")
set(STANDIN_PACKAGES "${GMLAKE_STANDIN_PACKAGES}")
if(GMLAKE_PYTHON AND STANDIN_PACKAGES STREQUAL "" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    execute_process(
        COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
        OUTPUT_VARIABLE STANDIN_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    if(NOT EXISTS ${STANDIN_PACKAGES}/torch/lib/libtorch_cuda.so)
        set(STANDIN_PACKAGES "")
    endif()
endif()
if(NOT STANDIN_PACKAGES)
    message(STATUS "The stand-in GPU is left out: it needs a PyTorch for CUDA 13 where gmlake is built")
    return()
endif()
set(STANDIN_HEADERS ${STANDIN_PACKAGES}/nvidia)
if(NOT EXISTS ${STANDIN_HEADERS}/cu13/include/cuda_runtime_api.h)
    if(GMLAKE_STANDIN_PACKAGES)
        message(FATAL_ERROR "GMLAKE_STANDIN_PACKAGES=${GMLAKE_STANDIN_PACKAGES} has no headers of CUDA 13; "
            "`make standin` fetches them")
    endif()
    message(STATUS "The stand-in GPU is left out: the PyTorch in ${STANDIN_PACKAGES} is not for CUDA 13")
    return()
endif()
find_package(Python 3.10 COMPONENTS Interpreter REQUIRED)

# What the C files define is declared from NVIDIA's headers; clang-tidy wants that without a build.
set(STANDIN_BUILT ${PROJECT_BINARY_DIR}/standin-entries)
file(MAKE_DIRECTORY ${STANDIN_BUILT})
set(STANDIN_RUNTIME ${STANDIN_HEADERS}/cu13/lib/libcudart.so.13)
execute_process(
    COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/csrc/standin/generate_stubs.py
        --runtime ${STANDIN_RUNTIME} --declarations ${STANDIN_BUILT}/entries.h
    COMMAND_ERROR_IS_FATAL ANY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS csrc/standin/generate_stubs.py)

file(GLOB STANDIN_SOURCES CONFIGURE_DEPENDS csrc/standin/*/*.c)
list(FILTER STANDIN_SOURCES EXCLUDE REGEX "harness/preload")
add_library(standin_objects OBJECT ${STANDIN_SOURCES})
target_link_libraries(standin_objects PUBLIC gmlake_objects)
target_compile_definitions(standin_objects PUBLIC _GNU_SOURCE)
target_include_directories(standin_objects PUBLIC csrc ${STANDIN_BUILT})
target_include_directories(standin_objects SYSTEM PUBLIC csrc/standin/headers
    ${STANDIN_HEADERS}/cu13/include ${STANDIN_HEADERS}/cudnn/include ${STANDIN_HEADERS}/nccl/include
    ${STANDIN_HEADERS}/cusparselt/include)

# One function for each of CUDA's that the C files answer, or that PyTorch's libraries want.
add_custom_command(
    OUTPUT ${STANDIN_BUILT}/entries.c
    COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/csrc/standin/generate_stubs.py
        --torch ${STANDIN_PACKAGES}/torch/lib
        --names ${PROJECT_SOURCE_DIR}/csrc/standin/names.txt
        --runtime ${STANDIN_RUNTIME}
        --output ${STANDIN_BUILT}/entries.c
        $<TARGET_OBJECTS:standin_objects>
    DEPENDS csrc/standin/generate_stubs.py csrc/standin/names.txt
        standin_objects $<TARGET_OBJECTS:standin_objects>
    COMMAND_EXPAND_LISTS VERBATIM)

add_library(standin_entries OBJECT ${STANDIN_BUILT}/entries.c)
target_link_libraries(standin_entries PRIVATE standin_objects)

add_library(standin SHARED csrc/standin/harness/preload.c)
target_link_libraries(standin PRIVATE standin_entries standin_objects gmlake_objects)
target_link_options(standin PRIVATE
    LINKER:--version-script=${PROJECT_SOURCE_DIR}/csrc/standin/standin.map
    $<$<BOOL:${GMLAKE_PYTHON}>:LINKER:--strip-all>)
set_target_properties(standin PROPERTIES
    OUTPUT_NAME cuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/standin)
target_link_options(standin PRIVATE LINKER:-soname,libcuda.so.1)

# What opens the management library finds the functions of the stand-in through this name.
file(TOUCH ${STANDIN_BUILT}/nothing.c)
add_library(standin_nvml SHARED ${STANDIN_BUILT}/nothing.c)
target_link_libraries(standin_nvml PRIVATE standin)
target_link_options(standin_nvml PRIVATE LINKER:--no-as-needed LINKER:-soname,libnvidia-ml.so.1
    $<$<BOOL:${GMLAKE_PYTHON}>:LINKER:--strip-all>)
set_target_properties(standin_nvml PROPERTIES
    OUTPUT_NAME nvidia-ml SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/standin
    INSTALL_RPATH "$ORIGIN")

if(GMLAKE_PYTHON)
    install(TARGETS standin standin_nvml LIBRARY DESTINATION gmlake/standin)
endif()

# Its own tests: with the others, or where GMLAKE_STANDIN is on, alone.
if(GMLAKE_TESTS OR GMLAKE_STANDIN)
    enable_testing()
    if(NOT TARGET gmlake_test_support)
        add_library(gmlake_test_support STATIC tests/c/support/check.c)
        target_link_libraries(gmlake_test_support PUBLIC gmlake_objects)
        target_include_directories(gmlake_test_support PUBLIC tests/c)
    endif()
    file(GLOB STANDIN_CHECKS CONFIGURE_DEPENDS tests/c/standin/test_*.c)
    foreach(source ${STANDIN_CHECKS})
        get_filename_component(name ${source} NAME_WE)
        add_executable(standin_${name} ${source})
        target_link_libraries(standin_${name} PRIVATE
            gmlake_test_support standin_entries standin_objects gmlake_objects)
        set_target_properties(standin_${name} PROPERTIES ENABLE_EXPORTS ON)
        add_test(NAME standin_${name} COMMAND standin_${name})
        set_tests_properties(standin_${name} PROPERTIES TIMEOUT 300 LABELS standin)
    endforeach()
endif()
