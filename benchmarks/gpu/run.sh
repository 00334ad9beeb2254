#!/bin/sh
# Everything that only a GPU can show: tests, the cost of driver calls and of a tensor, steps that never repeat,
# also in turns in one process and until memory ends, two trainings in turn on two streams, sleep, memory that
# passes between processes, memory of the host, and what trainings take that are forecast. Needs PyTorch with
# CUDA, gmlake importable, pytest, hypothesis and a C compiler with CMake; no network. `varying`, `turns`,
# `frontier`, `sleeping` and `on_host` need transformers, `forecasts` torchvision, too.
#
#   [GPUS=4] benchmarks/gpu/run.sh [PART]...
#
# All parts, unless some are named; four, which wants four GPUs, frontier and transports, which want two, and
# engines and servers, which want a folder with vLLM (ENGINES), run only where they are named. The tree has to be
# clean, for a result names its commit; GMLAKE_COMMIT names it where only the files were taken to another machine.
# `turns` and `frontier` use GPUS of the host at once.
#
# What a part prints goes to LOGS (build/gpu-logs), results go to benchmarks/results/. A part that fails does not
# stop the others; the last lines say what ran and what failed. PYTHON chooses the interpreter.
set -u
cd "$(dirname "$0")/../.."
PYTHON="${PYTHON:-python3}" GPUS="${GPUS:-1}" LOGS="${LOGS:-$PWD/build/gpu-logs}"
results=benchmarks/results

ALL="varying turns forecasts sleeping handing streams on_host overhead costs tests"
NAMED="frontier transports engines servers four"

# Builds into build/$1 with the options that follow; what is there already is only brought up to date.
build() {
    folder=build/$1
    shift
    cmake -S . -B "$folder" "$@" >/dev/null && cmake --build "$folder" --parallel >/dev/null
}

# What is different where a program has four GPUs.
four() {
    "$PYTHON" -m gpu.against --programs fsdp2 --processes 4 --rounds 2 --output $results/gpu_four_sharded.json &&
        "$PYTHON" -m gpu.transports --ranks 4 --output $results/gpu_four_transports.json
}

# Runs one part; fails where one of its commands does.
measure() {
    case $1 in
    tests) build c -DGMLAKE_TESTS=ON && "$PYTHON" -m gpu.tested --write ;;
    costs)
        build bench -DGMLAKE_BENCHMARKS=ON -DCMAKE_BUILD_TYPE=Release &&
            "$PYTHON" benchmarks/driver_costs.py --write
        ;;
    overhead) "$PYTHON" benchmarks/overhead.py --gpu --rounds 3 --output $results/overhead_gpu.json ;;
    varying) "$PYTHON" -m gpu.against --programs llama-1b,llama-3b-checkpoint --write ;;
    turns | frontier) "$PYTHON" -m "gpu.$1" --gpus "$GPUS" --write ;;
    forecasts | sleeping | handing | streams | transports | engines | on_host) "$PYTHON" -m "gpu.$1" --write ;;
    servers) "$PYTHON" -m gpu.servers ;;
    four) four ;;
    esac
}

[ $# -gt 0 ] || set -- $ALL
for wanted in "$@"; do
    case " $ALL $NAMED " in
    *" $wanted "*) ;;
    *)
        echo "run.sh: no part is called '$wanted'; there are $ALL $NAMED" >&2
        exit 2
        ;;
    esac
done
COMMIT=$("$PYTHON" benchmarks/commit.py) || exit 2
export PYTHONPATH="$PWD/benchmarks${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
"$PYTHON" -c 'import torch, gmlake
assert torch.cuda.is_available(), "PyTorch sees no GPU"
print(torch.__version__, torch.cuda.get_device_name(), "gmlake", gmlake.__version__, gmlake.__file__)' ||
    exit 2

mkdir -p "$LOGS"
failed=""
for wanted in "$@"; do
    began=$(date +%s)
    measure "$wanted" >"$LOGS/$wanted.log" 2>&1 || failed="$failed $wanted"
    echo "==== $wanted: $(($(date +%s) - began)) s"
done

echo "ran at $COMMIT: $*"
[ -z "$failed" ] || echo "failed:$failed" >&2
[ -z "$failed" ]
