#!/bin/sh
# Everything that only a GPU can show: tests, the cost of driver calls and of a tensor, training steps
# under PyTorch's allocators and gmlake, planned ones among them, two trainings in turn on two streams,
# steps that never repeat, and what else of PyTorch a program may use. Needs PyTorch with CUDA, gmlake
# importable, pytest, hypothesis and a C compiler with CMake; no network. `varying`, `features` and `howtos`
# need transformers, the last also accelerate, lightning and peft; the parts of forecasts need torchvision and
# transformers.
#
#   benchmarks/gpu/run.sh [PART]...
#
# Parts are tests, costs, overhead, training, planned, streams, varying, features, howtos, sleeping, loop, elastic,
# graphs, forecasts, forecast_ranks and transports, which want two GPUs, and forecast_largest, which wants LARGEST, a file
# of forecast/largest.py; all but the last unless named.
#
# PYTHON chooses the interpreter. Results go to benchmarks/results/. A part that fails does not stop
# the others; the exit status says whether one did.
set -u
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD/benchmarks${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
failed=""

part() {
    name=$1
    shift
    echo "==== $name: $*"
    began=$(date +%s)
    "$@" || failed="$failed $name"
    echo "==== $name: $(($(date +%s) - began)) s"
}

# Builds into build/$1 with the options that follow; what is there already is only brought up to date.
build() {
    folder=build/$1
    shift
    cmake -S . -B "$folder" "$@" >/dev/null && cmake --build "$folder" --parallel >/dev/null
}

"$PYTHON" -c 'import torch, gmlake
assert torch.cuda.is_available(), "PyTorch sees no GPU"
print(torch.__version__, torch.cuda.get_device_name(), "gmlake", gmlake.__version__, gmlake.__file__)' ||
    exit 2

[ $# -gt 0 ] || set -- tests costs overhead training planned streams varying features howtos sleeping loop elastic graphs forecasts forecast_ranks transports
for wanted in "$@"; do
    case $wanted in
    tests)
        part build-tests build c -DGMLAKE_TESTS=ON
        part tests "$PYTHON" -m gpu.tested --write
        ;;
    costs)
        part build-costs build bench -DGMLAKE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release
        part driver-costs "$PYTHON" benchmarks/driver_costs.py --write
        part driver-waits "$PYTHON" benchmarks/driver_waits.py --write
        ;;
    overhead)
        part overhead "$PYTHON" benchmarks/overhead.py --gpu --rounds 3 \
            --output benchmarks/results/overhead_gpu.json
        ;;
    training)
        part training "$PYTHON" -m gpu.compare --write
        ;;
    planned)
        part planned "$PYTHON" -m gpu.planned --write
        ;;
    streams)
        part streams "$PYTHON" -m gpu.streams --write
        ;;
    varying)
        part varying "$PYTHON" -m gpu.against --programs llama-1b,llama-3b-checkpoint --write
        ;;
    features)
        part features "$PYTHON" -m gpu.features --write
        ;;
    howtos)
        part howtos "$PYTHON" -m gpu.howtos --write
        ;;
    sleeping)
        part sleeping "$PYTHON" -m gpu.sleeping --write
        ;;
    loop)
        part loop "$PYTHON" -m gpu.loop --write
        ;;
    elastic)
        part elastic "$PYTHON" -m gpu.elastic --write
        ;;
    graphs)
        part graphs "$PYTHON" -m gpu.graphs --write
        ;;
    forecasts)
        part forecasts "$PYTHON" -m gpu.forecasts --write
        part overheads "$PYTHON" -m gpu.overheads --write
        ;;
    forecast_ranks)
        folder=$(mktemp -d)
        for allocator in default expandable gmlake; do
            part "forecast-ranks-$allocator" "$PYTHON" -m torch.distributed.run --nproc-per-node 2 \
                -m gpu.forecast_ranks "$allocator" "$folder"
        done
        part forecast-ranks "$PYTHON" -m gpu.forecast_ranks --write "$folder"
        rm -r "$folder"
        ;;
    forecast_largest)
        part forecast-largest "$PYTHON" -m gpu.ballast --largest "${LARGEST:?names a file}" --write
        ;;
    transports)
        part transports "$PYTHON" -m gpu.transports --write
        ;;
    *)
        echo "run.sh: no part is called '$wanted'; there are tests, costs, overhead, training, planned, streams, varying, features, howtos, sleeping, loop, elastic, graphs, forecasts, forecast_ranks, forecast_largest, transports" >&2
        exit 2
        ;;
    esac
done

[ -z "$failed" ] || echo "failed:$failed" >&2
[ -z "$failed" ]
