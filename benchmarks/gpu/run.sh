#!/bin/sh
# Everything that only a GPU can show: tests, the cost of driver calls and of a tensor, steps that never repeat,
# also in turns in one process and until memory ends, two trainings in turn on two streams, sleep, memory that
# passes between processes, and what trainings take that are forecast. Needs PyTorch with CUDA, gmlake
# importable, pytest, hypothesis and a C compiler with CMake; no network. `varying`, `turns`, `frontier` and
# `sleeping` need transformers, `forecasts` torchvision, too.
#
#   [GPUS=4] benchmarks/gpu/run.sh [PART]...
#
# All parts, unless some are named; four, which wants four GPUs, runs only where it is named. The tree has to be
# clean, for a result names its commit; GMLAKE_COMMIT names it where only the files were taken to another
# machine.
#
# With GPUS, so many parts run side by side, each with a GPU and an equal share of the cores of its own; those
# that want several GPUs run alone at the end. What a part prints goes to LOGS (build/gpu-logs), results go to
# benchmarks/results/. A part that fails does not stop the others; the last lines say what ran and what failed.
#
# PYTHON chooses the interpreter.
set -u
cd "$(dirname "$0")/../.."
export PYTHON="${PYTHON:-python3}" GPUS="${GPUS:-1}" LOGS="${LOGS:-$PWD/build/gpu-logs}"

SINGLE="varying turns forecasts sleeping handing streams overhead costs tests"
PAIRED="frontier transports"
NAMED="four"

# Builds into build/$1 with the options that follow; what is there already is only brought up to date.
build() {
    folder=build/$1
    shift
    cmake -S . -B "$folder" "$@" >/dev/null && cmake --build "$folder" --parallel >/dev/null
}

# What is different where a program has four GPUs.
four() {
    results=benchmarks/results
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
    overhead)
        "$PYTHON" benchmarks/overhead.py --gpu --rounds 3 --output benchmarks/results/overhead_gpu.json
        ;;
    varying) "$PYTHON" -m gpu.against --programs llama-1b,llama-3b-checkpoint --write ;;
    forecasts) "$PYTHON" -m gpu.forecasts --write ;;
    frontier) "$PYTHON" -m gpu.frontier --gpus "$GPUS" --write ;;
    four) four ;;
    turns | sleeping | handing | streams | transports)
        "$PYTHON" -m "gpu.$1" --write
        ;;
    esac
}

# One part of several side by side: xargs says in SLOT which of the GPUs is free.
if [ "${1:-}" = --one ]; then
    part=$2
    if [ -n "${SLOT:-}" ]; then
        export CUDA_VISIBLE_DEVICES="$SLOT"
        share=$(($(nproc) / GPUS))
        [ "$share" -eq 0 ] || taskset -cp "$((SLOT * share))-$((SLOT * share + share - 1))" $$ >/dev/null
    fi
    began=$(date +%s)
    outcome=ran
    measure "$part" >"$LOGS/$part.log" 2>&1 || outcome=failed
    echo "$part" >>"$LOGS/$outcome"
    [ $outcome = ran ] || tail -n 20 "$LOGS/$part.log"
    echo "==== $part: $outcome, $(($(date +%s) - began)) s"
    exit 0
fi

[ $# -gt 0 ] || set -- $SINGLE $PAIRED
alone=""
together=""
for wanted in "$@"; do
    case " $SINGLE | $PAIRED $NAMED " in
    *" $wanted "*"|"*) alone="$alone $wanted" ;;
    *"|"*" $wanted "*) together="$together $wanted" ;;
    *)
        echo "run.sh: no part is called '$wanted'; there are $SINGLE $PAIRED $NAMED" >&2
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

mkdir -p "$LOGS" && rm -f "$LOGS/ran" "$LOGS/failed" && touch "$LOGS/ran" "$LOGS/failed"
if [ "$GPUS" -gt 1 ] && [ -n "$alone" ]; then
    printf '%s\n' $alone | xargs -n 1 -P "$GPUS" --process-slot-var=SLOT benchmarks/gpu/run.sh --one
else
    together="$alone $together"
fi
for wanted in $together; do
    benchmarks/gpu/run.sh --one "$wanted"
done

echo "ran at $COMMIT:" $(cat "$LOGS/ran")
failed=$(cat "$LOGS/failed")
[ -z "$failed" ] || echo "failed:" $failed >&2
[ -z "$failed" ]
